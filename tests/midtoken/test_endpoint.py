"""Who may enter the port for editors: with a key, and over TLS where the address is not loopback."""

import ssl
import subprocess
from argparse import Namespace
from pathlib import Path

import pytest
import trustme

from inference.errors import MidtokenError
from midtoken.access import Access
from midtoken.server_arguments import UsageError
from tests.support.access import ANN, BOB, bearer, write_certificate, write_keys
from tests.support.front import last_chunk, open_endpoint, run_front

_INFILL = "/infill"


async def test_with_keys_nobody_enters_without_one_and_the_key_says_who_it_is(tmp_path: Path) -> None:
    async with run_front(open_endpoint(keys=write_keys(tmp_path))) as front:
        for given in ({}, bearer(ANN[:-1]), bearer("é"), {"Authorization": ANN}):
            assert (await front.post(_INFILL, {}, given))[0] == 401
        tenants = []
        for key, user in ((ANN, ""), (ANN, "bob"), (BOB, "ann")):
            asking, stream = await front.begin(front.post(_INFILL, {"user": user}, bearer(key)))
            stream.send(last_chunk("e"))
            assert (await asking)[0] == 200
            tenants.append(stream.request.tenant)
        write_keys(tmp_path, f"ann {ANN}\n")
        assert (await front.post(_INFILL, {}, bearer(BOB)))[0] == 401
    assert tenants[0] == tenants[1] != tenants[2]
    assert not {"ann", "bob", ""} & set(tenants)


@pytest.mark.parametrize(
    ("options", "mode", "text", "reason"),
    [
        ({"keys": "keys"}, 0o644, f"ann {ANN}", "--keys has secrets"),
        ({"keys": "keys"}, 0o600, "\n", "--keys has no key"),
        ({"tls": "keys"}, 0o600, "none", "--tls needs a private key"),
        ({"openai": "0.0.0.0:0"}, 0o600, "", r"--openai at 0\.0\.0\.0 needs --keys FILE and --tls FILE"),
        ({"openai": "[::]:0"}, 0o600, "", r"--openai at \[::\] needs"),
        ({"openai": "localhost.example:0"}, 0o600, "", r"--openai at localhost\.example needs"),
        ({"openai": "0.0.0.0:0", "keys": "keys"}, 0o600, f"ann {ANN}", "and --tls FILE"),
    ],
    ids=["readable", "empty", "no certificate", "neither", "neither in IPv6", "a name", "no encryption"],
)
def test_keys_that_protect_nothing_and_an_address_without_them_are_refused(
    tmp_path: Path, options: dict[str, str], mode: int, text: str, reason: str
) -> None:
    write_keys(tmp_path, text, mode)
    places = {name: value if name == "openai" else tmp_path / value for name, value in options.items()}
    with pytest.raises(MidtokenError, match=reason):
        open_endpoint(**places)


@pytest.mark.parametrize("address", ["localhost", "LocalHost", "[::1]", "127.0.0.2"])
async def test_a_loopback_address_needs_no_keys_and_refuses_web_pages(address: str) -> None:
    async with run_front(open_endpoint(openai=f"{address}:0")) as front:
        for headers, status in (({}, 200), ({"Host": "evil.example"}, 403)):
            async with front.session.get(f"{front.url}/v1/models", headers=headers) as response:
                assert response.status == status


def test_a_key_in_the_environment_that_is_not_read_any_more_opens_no_port_without_one() -> None:
    options = Namespace(openai="0", keys=None, tls=None)
    with pytest.raises(UsageError, match=r"there is no MIDTOKEN_OPENAI_KEY: .*--keys"):
        Access.from_options(options, {"MIDTOKEN_OPENAI_KEY": "s3cret"}, print)


def test_a_private_key_with_a_password_is_refused_without_a_question(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=a", "-passout", "pass:x")
    subprocess.run([*command, "-keyout", path, "-out", tmp_path / "cert.pem"], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + (tmp_path / "cert.pem").read_bytes())
    with pytest.raises(UsageError, match="of --tls needs a private key"):
        open_endpoint(tls=path)


async def test_another_address_with_tls_and_keys(tmp_path: Path) -> None:
    authority, trusted = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusted)
    path = write_certificate(tmp_path, authority, "127.0.0.2")
    endpoint = open_endpoint(openai="127.0.0.2:0", keys=write_keys(tmp_path), tls=path)
    async with (
        run_front(endpoint) as front,
        front.session.get(f"{front.url}/v1/models", headers=bearer(ANN), ssl=trusted) as response,
    ):
        assert response.status == 200
