"""Who may enter the port for editors: with a key, and over TLS where the address is not loopback."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from midtoken.server_arguments import UsageError
from tests.support.front import last_chunk, open_endpoint, run_front

_INFILL = "/infill"


async def test_with_a_key_nobody_enters_without_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("s3cret\n")
    async with run_front(open_endpoint(openai_key=path)) as front:
        for given in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Bearer é"}):
            assert (await front.post(_INFILL, {}, given))[0] == 401
        asking, stream = await front.begin(front.post(_INFILL, {}, {"Authorization": "Bearer s3cret"}))
        stream.send(last_chunk("e"))
        assert (await asking)[0] == 200


@pytest.mark.parametrize(
    ("options", "environment", "mode", "text", "reason"),
    [
        ({"openai_key": "file"}, {}, 0o644, "s3cret", "--openai-key"),
        ({"openai_key": "file"}, {}, 0o600, "\n", "--openai-key"),
        ({"openai_key": "none"}, {}, 0o600, "", "--openai-key"),
        ({"openai_tls": "file"}, {}, 0o600, "none", "needs a private key"),
        ({"openai": "0.0.0.0:0"}, {}, 0o600, "", r"may reach 0\.0\.0\.0, so --openai needs a key"),
        ({"openai": "0.0.0.0:0"}, {"MIDTOKEN_OPENAI_KEY": "s3cret"}, 0o600, "", "and --openai-tls FILE"),
    ],
    ids=["readable", "empty", "missing", "no certificate", "no key", "no encryption"],
)
def test_a_key_that_protects_nothing_and_an_address_without_one_are_refused(
    tmp_path: Path, options: dict[str, str], environment: Mapping[str, str], mode: int, text: str, reason: str
) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    path.chmod(mode)
    places = {name: value if name == "openai" else tmp_path / value for name, value in options.items()}
    with pytest.raises(UsageError, match=reason):
        open_endpoint(environment, **places)


async def test_another_address_with_tls_and_a_key_from_the_environment(tmp_path: Path) -> None:
    authority, path, trusted = trustme.CA(), tmp_path / "server.pem", ssl.create_default_context()
    authority.issue_cert("127.0.0.2").private_key_and_cert_chain_pem.write_to_path(path)
    authority.configure_trust(trusted)
    endpoint = open_endpoint({"MIDTOKEN_OPENAI_KEY": "s3cret"}, openai="127.0.0.2:0", openai_tls=path)
    async with run_front(endpoint) as front:
        headers = {"Authorization": "Bearer s3cret"}
        async with front.session.get(f"{front.url}/v1/models", headers=headers, ssl=trusted) as response:
            assert response.status == 200
