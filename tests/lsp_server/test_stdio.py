"""The end of the language server's process."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_INITIALIZE: dict[str, Any] = {
    "id": 1,
    "method": "initialize",
    "params": {"capabilities": {}, "processId": None, "rootUri": None},
}
_SHUTDOWN: dict[str, Any] = {"id": 2, "method": "shutdown"}
_EXIT: dict[str, Any] = {"method": "exit"}


def frame(message: dict[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0"} | message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        ([_INITIALIZE, _SHUTDOWN, _EXIT], 0),
        ([_INITIALIZE, _EXIT], 1),
        ([_INITIALIZE], 1),
        ([], 1),
    ],
)
def test_exit_status_is_zero_only_after_shutdown(messages: list[dict[str, Any]], status: int, tmp_path: Path) -> None:
    ended = run_with(b"".join(map(frame, messages)), tmp_path)
    assert (ended.returncode, ended.stderr) == (status, b"")


def test_input_that_is_not_lsp_ends_the_process_with_one_line_about_it(tmp_path: Path) -> None:
    ended = run_with(frame(_INITIALIZE) + b"Content-Length: 100000000000\r\n\r\nsecret", tmp_path)
    line = b"midtoken: a message has no Content-Length of at most 67108864 bytes; the language server ends\n"
    assert (ended.returncode, ended.stderr) == (1, line)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_in_order(number: signal.Signals, tmp_path: Path) -> None:
    with start(tmp_path) as process:
        send_and_read(process, _INITIALIZE)
        process.send_signal(number)
        assert process.wait(20) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_the_process_ends_when_the_editors_process_has_ended(tmp_path: Path) -> None:
    with start(tmp_path) as process, subprocess.Popen(["sleep", "60"]) as editor:
        params = _INITIALIZE["params"] | {"processId": editor.pid}
        send_and_read(process, _INITIALIZE | {"params": params})
        editor.kill()
        editor.wait()
        assert process.wait(20) == 1


def run_with(data: bytes, folder: Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(build_command(folder), cwd=_ROOT, input=data, capture_output=True, timeout=60)


def start(folder: Path) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    return subprocess.Popen(build_command(folder), cwd=_ROOT, stdin=pipe, stdout=pipe, stderr=pipe)


def send_and_read(process: "subprocess.Popen[bytes]", request: dict[str, Any]) -> None:
    """Sends a request, and reads the first line of the reply."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(frame(request))
    process.stdin.flush()
    assert process.stdout.readline().startswith(b"Content-Length: ")


def build_command(folder: Path) -> list[str]:
    script = folder / "script.json"
    script.write_text(json.dumps({"rules": [], "log": str(folder / "log")}))
    return [sys.executable, "-m", "tests.support.scripted_server", str(script)]
