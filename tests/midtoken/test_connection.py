import io
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any  # grpc has no types

import grpc
import pytest
import trustme

from inference.errors import ServerUnreachableError
from inference.protocol.completion import CompletionRequest
from midtoken.connection import Connection, show_waiting
from midtoken.server import ServerAddress
from midtoken.server_arguments import add_connection_arguments
from tests.support.fake_triton import build_last_chunk, run_fake_triton, say
from tests.support.lsp_fakes import clear
from tests.support.options import parse_options
from tests.support.servers import wait_until

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


@asynccontextmanager
async def _connect(url: str, key: str = "") -> AsyncIterator[Connection]:
    connection = Connection(ServerAddress(url, key=key))
    yield connection
    await connection.close()


async def test_a_document_has_a_name_for_gateways_that_tells_nothing_of_it() -> None:
    """A new connection does not change the name, so that the document's server remains the same one."""
    names = []
    async with run_fake_triton(_SAY_DONE) as server:
        for document in ("file:///a.py", "file:///a.py", "file:///b.py", ""):
            async with _connect(server.url, key="secret") as connection:
                request = CompletionRequest("a", document=document)
                assert [chunk.text async for chunk in connection.stream(clear(request))] == ["done"]
                await connection.read_description()
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
