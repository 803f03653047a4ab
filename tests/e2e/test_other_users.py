"""What other users of the machine can read of a server and its requests. The tests act as the user `nobody`."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.protocol.completion import CompletionRequest
from inference.serving.client import Client
from inference.serving.loopback import ADDRESS
from inference.serving.triton_installation import SOCKETS
from tests.support.other_user import NOBODY, as_nobody, can_other_user_listen, needs_other_user
from tests.support.servers import (
    Endpoint,
    RunningServer,
    find_processes,
    make_scripted,
    run_server,
    wait_until,
)

pytestmark = [
    pytest.mark.e2e,
    needs_other_user,
]

_PASSWORD = "hunter2-hunter2"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server in a folder that everybody may enter, like many home folders."""
    with tempfile.TemporaryDirectory(prefix="midtoken-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        before = os.umask(0o022)
        with run_server(make_scripted(folder), folder / "state") as server:
            os.umask(before)
            yield server


async def test_other_users_cannot_read_source_text_in_shared_memory(server: RunningServer) -> None:
    client = Client(server.url)
    async for _ in client.stream(CompletionRequest(f"password = '{_PASSWORD}'\n" * 100)):
        pass
    await client.close()
    regions = server.find_regions()
    # The secret is in the memory: the text, or the completion, which is the text reversed.
    secrets = (_PASSWORD.encode(), _PASSWORD[::-1].encode())
    assert any(secret in region.read_bytes() for region in regions for secret in secrets)
    assert [region for region in regions if _read_as_nobody(region) is not None] == []


def test_other_users_cannot_reach_the_sockets_of_tritonserver(server: RunningServer) -> None:
    sockets = [path for path in server.state_dir.rglob("*") if path.is_socket()]
    assert len(sockets) == len(SOCKETS)
    for path in sockets:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        with as_nobody(), socket.socket(socket.AF_UNIX) as client, pytest.raises(PermissionError):
            client.connect(str(path))


def test_other_users_cannot_read_logs_and_locks(server: RunningServer) -> None:
    kept = [path for path in server.state_dir.glob("*/**/*") if path.is_file()]
    assert {"tritonserver.log", "server.url"} <= {path.name for path in kept}
    installed = {path for path in kept if path.is_symlink()}  # links to the installed server
    assert [path for path in set(kept) - installed if _read_as_nobody(path) is not None] == []


def test_the_visible_arguments_open_no_closed_api(server: RunningServer) -> None:
    pairs = {pair for pid in find_processes(server.state_dir) for pair in _find_headers(_read_command_as_nobody(pid))}
    assert pairs, "the arguments that close the APIs are not there"
    for name, value in [*pairs, *((name.strip(), value.strip()) for name, value in pairs)]:
        assert _ask_http(server.endpoint, name.encode() + b": " + value.encode()) != 200
        assert "READY" not in _ask_grpc(server.endpoint, f"triton-grpc-protocol-{name}".encode(), value.encode())


def test_a_closed_api_exists_and_refuses_requests(server: RunningServer) -> None:
    assert _ask_http(server.endpoint, b"a: b") == 403
    assert "This protocol is restricted" in _ask_grpc(server.endpoint, b"a", b"b")


def test_while_a_server_is_started_again_nobody_else_can_take_its_ports(own_server: RunningServer) -> None:
    killed = set(own_server.find_stubs())
    ports = [int(each.partition("=")[2]) for each in own_server.endpoint.arguments]
    os.kill(next(iter(killed)), signal.SIGKILL)
    taken: list[int] = []

    def is_started_again() -> bool:
        taken.extend(port for port in ports if can_other_user_listen(port))
        return len(set(own_server.find_stubs()) - killed) == len(killed)

    wait_until(is_started_again)
    assert not taken


def _read_as_nobody(path: Path) -> bytes | None:
    """Returns the file's content; None if the user `nobody` has no access."""
    result = subprocess.run(
        ["cat", str(path)], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False
    )
    return result.stdout if result.returncode == 0 else None


def _read_command_as_nobody(pid: int) -> list[str]:
    content = _read_as_nobody(Path("/proc", str(pid), "cmdline")) or b""
    return content.decode().split("\0")


def _find_headers(command: list[str]) -> list[tuple[str, str]]:
    """Returns the names and values of the headers that open the closed APIs."""
    closing = [argument.rpartition(":")[2] for argument in command if "restricted" in argument]
    return [(name, value) for name, _, value in (each.partition("=") for each in closing)]


def _ask_http(endpoint: Endpoint, header: bytes) -> int | None:
    """Requests a closed API with this header line. Returns the status; None if the server closes the connection."""
    lines = [
        b"GET /v2/logging HTTP/1.1",
        f"Host: {ADDRESS}:{endpoint.http_port}".encode(),
        header,
    ]
    request = b"\r\n".join([*lines, b"", b""])
    reply = _exchange(endpoint.http_port, request, b"\r\n")
    return int(reply.split()[1]) if reply else None


def _ask_grpc(endpoint: Endpoint, name: bytes, value: bytes) -> str:
    """Returns what the server sends for a call of a closed API with this header.

    The frames are built by hand (RFC 9113), because gRPC clients refuse to send an invalid header.
    """
    headers = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/inference.GRPCInferenceService/RepositoryIndex"),
        (b":authority", b"a"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (name, value),
    ]
    block = b"".join(b"\0" + bytes([len(key)]) + key + bytes([len(text)]) + text for key, text in headers)
    settings, opening = _frame(4, 0, 0, b""), _frame(1, 4, 1, block)
    message = _frame(0, 1, 1, bytes(5))  # an empty one
    request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + opening + message
    return _exchange(endpoint.grpc_port, request, b"grpc-status").decode(errors="replace")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _exchange(port: int, request: bytes, end: bytes) -> bytes:
    """Returns what is received until the connection closes, or is silent for a second after `end` was received."""
    received = b""
    with socket.create_connection((ADDRESS, port)) as connection, contextlib.suppress(ConnectionError, TimeoutError):
        connection.sendall(request)
        connection.settimeout(30)
        while part := connection.recv(4096):
            received += part
            if end in received:
                connection.settimeout(1)
    return received
