"""Which server a command uses, and how text gets there."""

import io
import os
import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any  # grpc has no types

import grpc
import pytest
import trustme

from inference.errors import LaunchError, ServerUnreachableError
from inference.protocol.completion import CompletionRequest
from lsp_server.guard import Guard
from midtoken.cli import main
from midtoken.connection import Connection, ServerAddress, ServerArguments, show_waiting
from midtoken.server_arguments import UsageError, add_connection_arguments, may_be_remote
from tests.support.fake_triton import build_last_chunk, run_fake_triton, say
from tests.support.lsp_fakes import clear
from tests.support.options import parse_options
from tests.support.playground import MISSING
from tests.support.servers import wait_until, write_model_files


def _read(*arguments: str) -> ServerAddress | None:
    return ServerAddress.from_options(parse_options(add_connection_arguments, *arguments), {})


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ((), None),
        *(
            (("--server", f"{host}:8001"), ServerAddress(f"{host}:8001"))
            for host in ("127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "localhost")
        ),
        (("--server", "unix:/a,b/grpc", "--server-key", "{key}"), ServerAddress("unix:/a,b/grpc")),
        (("--server", "grpcs://there:1"), ServerAddress("there:1", b"")),
        (("--server", "grpcs://there:1", "--tls-ca", "{ca}"), ServerAddress("there:1", b"certificates")),
        (("--server", "grpcs://there:1", "--server-key", "{key}"), ServerAddress("there:1", b"", "s3cret")),
        (("--server", "[::1]:2", "--server-key", "{key}"), ServerAddress("[::1]:2", None, "s3cret")),
    ],
)
def test_text_goes_to_this_machine_or_over_tls(
    arguments: Sequence[str], address: ServerAddress | None, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_bytes(b"certificates")
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text("s3cret\n")
    found = _read(*(each.format(ca=tmp_path / "ca.pem", key=tmp_path / "key") for each in arguments))
    assert found == address
    assert "s3cret" not in repr(found)


def test_a_key_may_be_in_the_environment() -> None:
    options = parse_options(add_connection_arguments, "--server", "grpcs://there:1")
    found = ServerAddress.from_options(options, {"MIDTOKEN_SERVER_KEY": "s3cret\n"})
    assert found == ServerAddress("there:1", b"", "s3cret")


@pytest.mark.parametrize("key", ["two words", "é", "a\nb", "\x7f", ""])
def test_a_key_that_no_header_can_have_is_refused_and_not_quoted(key: str, tmp_path: Path) -> None:
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text(key)
    with pytest.raises(UsageError, match=r"key for --server-key must be one word of printable ASCII") as raised:
        _read("--server", "grpcs://there:1", "--server-key", str(tmp_path / "key"))
    assert not key or key not in str(raised.value).partition("must be")[0].replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        *(
            (("--server", f"{host}:1"), "is not this machine, and text would go there unencrypted: write grpcs://")
            for host in ("192.0.2.7", "there", "0.0.0.0", "[2001:db8::1]", "[::ffff:192.0.2.7]")
        ),
        (("--tls-ca", "ca.pem"), "--tls-ca is about a running server"),
        (("--server-key", "k"), "--server-key is about a running server"),
        (("--server", "127.0.0.1:1", "--model", "m"), "--model has no effect with --server"),
        (("--server", "127.0.0.1:1", "--device", "cuda"), "--device has no effect with --server"),
        (("--server", "127.0.0.1:1", "--cache-ram", "1"), "--cache-ram has no effect with --server"),
        (("--server", "grpcs://there:1", "--tls-ca", "/nonexistent"), "cannot read /nonexistent of --tls-ca"),
        (("--engine", "http://192.0.2.7:1"), "192.0.2.7 is not this machine, and text would go there unencrypted"),
    ],
)
def test_arguments_that_cannot_be_followed_are_refused(arguments: Sequence[str], problem: str) -> None:
    read = _parse if "--engine" in arguments else _read
    with pytest.raises(UsageError, match=problem):
        read(*arguments)


@pytest.mark.parametrize(
    "command",
    [
        *(("complete", "{0}:1"), ("explain", "{0}:1"), ("characters", "{0}"), ("demo",)),
        pytest.param(("playground",), marks=pytest.mark.skipif(MISSING is not None, reason=str(MISSING))),
    ],
)
def test_every_command_refuses_another_machine(
    command: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.py"
    source.write_text("x = 1\n")
    assert main([*(each.format(source) for each in command), "--server", "192.0.2.7:8001"]) == 1
    assert "192.0.2.7 is not this machine" in capsys.readouterr().err


def _parse(*arguments: str) -> ServerArguments:
    return ServerArguments.from_options(parse_options(add_connection_arguments, *arguments))


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "a model"
    folder.mkdir()
    write_model_files(folder)
    return folder


_OTHERS = ((), ("--threads", "2"), ("--dtype", "bfloat16"), ("--context", "2048"), ("--cache-ram", "512"))


def test_each_model_and_setting_has_a_host_of_its_own(model_dir: Path, tmp_path: Path) -> None:
    options = ("--model", str(model_dir), "--state-dir", str(tmp_path))
    places = {_parse(*options, *more).place for more in _OTHERS}
    assert len(places) == len(_OTHERS)


@pytest.mark.parametrize(
    ("engine", "url"), [("http://127.0.0.1:80", "http://127.0.0.1:80#{}?"), ("[::1]:80#ann/b", "http://[::1]:80#ann/b")]
)
def test_an_engine_is_asked_for_the_model_that_is_named(model_dir: Path, engine: str, url: str) -> None:
    assert _parse("--model", str(model_dir), "--engine", engine).config.engine_url == url.format(model_dir)


def test_each_option_of_a_configuration_becomes_its_field(model_dir: Path, tmp_path: Path) -> None:
    given = ("--dtype", "float64", "--threads", "3", "--context", "65536", "--cache-ram", "0", "--device", "cpu")
    config = _parse("--model", str(model_dir), "--state-dir", str(tmp_path), *given).config
    assert (config.model_dir, config.dtype, config.device, config.num_threads) == (model_dir, "float64", "cpu", 3)
    assert (config.max_context_tokens, config.memory_mib, config.cache_tokens) == (65_536, 0, 5 * 65_536)


def test_a_context_is_a_number_or_auto(capsys: pytest.CaptureFixture[str]) -> None:
    contexts = [
        parse_options(add_connection_arguments, *each).max_context_tokens
        for each in ((), ("--context", "auto"), ("--context", "4096"))
    ]
    assert contexts == [None, None, 4096]
    for refused in ("0", "1.5", "-1", "many", "99999999999"):
        with pytest.raises(SystemExit):
            parse_options(add_connection_arguments, "--context", refused)
        assert "argument --context: must be a number from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "owner", "is_used"),
    [("{0}", 0, True), ("{0}", 65534, False), ("", 0, False), ("relative", 0, False), ("/no/such/folder", 0, False)],
    ids=["the user's", "another user's", "empty", "relative", "missing"],
)
def test_servers_are_found_in_the_runtime_folder_if_the_user_has_one(
    value: str, owner: int, is_used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, state = tmp_path / "runtime", tmp_path / "state"
    runtime.mkdir()
    if owner and os.getuid():
        pytest.skip("only root can make a folder of another user")
    if owner:
        os.chown(runtime, owner, owner)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("XDG_RUNTIME_DIR", value.format(runtime))
    assert _parse().place.socket.parent == (runtime if is_used else state) / "midtoken"


def test_a_user_without_a_home_folder_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31)  # a user that the system does not know
    with pytest.raises(LaunchError, match="this user has no home folder: set HOME"):
        _parse()


@pytest.mark.parametrize(
    ("arguments", "is_remote"),
    [
        ((), False),
        (("--server=127.0.0.1:8001",), True),
        (("--server=unix:/run/user/1/midtoken.sock",), True),
        (("--server=grpcs://example.org:8001",), True),
        (("--model=-a model",), False),
        (("--engine=http://127.0.0.1:8080",), False),
        (("--engine=HTTPS://example.org",), True),
    ],
)
def test_a_server_that_may_be_on_another_machine_is_known_by_its_options(
    arguments: tuple[str, ...], is_remote: bool
) -> None:
    assert may_be_remote(parse_options(add_connection_arguments, *arguments)) == is_remote


_SAY_DONE = say(build_last_chunk("done"))


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def _build_credentials(authority: trustme.CA, name: str) -> Any:
    issued = authority.issue_cert(name)
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    return grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])


async def test_a_server_with_a_certificate_of_ones_own_is_used_over_tls(authority: trustme.CA, ca_file: Path) -> None:
    async with run_fake_triton(_SAY_DONE, credentials=_build_credentials(authority, "127.0.0.1")) as server:
        connection = await Connection.open(
            parse_options(add_connection_arguments, "--server", f"grpcs://{server.url}", "--tls-ca", str(ca_file))
        )
        chunks = [chunk.text async for chunk in connection.stream(clear(CompletionRequest("a")))]
        await connection.close()
    assert chunks == ["done"]


@pytest.mark.parametrize(
    ("name", "is_trusted"),
    [("127.0.0.1", False), ("another.example", True), (None, True)],
    ids=["unknown", "of another name", "missing"],
)
async def test_nothing_is_sent_to_a_server_without_a_certificate_that_is_its_own_and_trusted(
    name: str | None, is_trusted: bool, authority: trustme.CA, ca_file: Path
) -> None:
    credentials = _build_credentials(authority, name) if name else None
    async with run_fake_triton(_SAY_DONE, credentials=credentials) as server:
        arguments = ("--server", f"grpcs://{server.url}", *(("--tls-ca", str(ca_file)) if is_trusted else ()))
        with pytest.raises(ServerUnreachableError, match="no server answers at"):
            await Connection.open(parse_options(add_connection_arguments, *arguments))
    assert server.calls == []


async def test_a_document_has_a_name_for_gateways_that_tells_nothing_of_it() -> None:
    """A new connection does not change the name, so that the document's server remains the same one."""
    names, guard = [], Guard()
    async with run_fake_triton(_SAY_DONE) as server:
        for document in ("file:///a.py", "file:///a.py", "file:///b.py", ""):
            connection = Connection(ServerAddress(server.url, key="secret"))
            request = CompletionRequest("a", document=document)
            assert [chunk.text async for chunk in connection.stream(guard.clear(request, ()))] == ["done"]
            await connection.read_description()
            await connection.close()
            names.append([each.get("x-session-id") for each in server.metadata[-2:]])
        assert {each["authorization"] for each in server.metadata} == {"Bearer secret"}
    (first, _), (again, _), (other, _), (nothing, _) = names
    assert (first == again != other, nothing, len(first or "")) == (True, None, 32)
    assert {described for _, described in names} == {None}
    assert first != blake2b(b"file:///a.py", digest_size=16).hexdigest()


def test_waiting_is_shown_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with show_waiting():
        wait_until(lambda: "waiting for the completion server" in stream.getvalue())
