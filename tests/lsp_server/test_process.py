"""The language server as a process: when it ends, and what it says then."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]


def _write(method: str, **members: Any) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "method": method, **members}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def _initialize(process_id: int | None = None) -> bytes:
    return _write("initialize", id=1, params={"capabilities": {}, "processId": process_id, "rootUri": None})


def _start(folder: Path, *wrapper: str) -> "subprocess.Popen[bytes]":
    """Starts the language server's process. `wrapper`: the beginning of a command that starts it as a child."""
    script = folder / "script.json"
    script.write_text(json.dumps({"rules": [], "log": str(folder / "log")}))
    command, pipe = [*wrapper, sys.executable, "-m", "tests.support.scripted_server", str(script)], subprocess.PIPE
    return subprocess.Popen(command, cwd=_ROOT, stdin=pipe, stdout=pipe, stderr=pipe)


def _exchange(process: "subprocess.Popen[bytes]", message: bytes) -> None:
    """Writes a message, and reads an answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(message)
    process.stdin.flush()
    length = int(process.stdout.readline().removeprefix(b"Content-Length: "))
    while process.stdout.readline() != b"\r\n":
        pass
    process.stdout.read(length)


@pytest.mark.parametrize(
    ("messages", "rest", "status"),
    [
        ([_initialize(), _write("shutdown", id=2)], _write("exit"), 0),
        ([_initialize()], _write("exit"), 1),
        ([_initialize()], b"", 1),
        ([], b"no message\r\n", 1),
        ([_initialize()], b"Content-Length: 100\r\n\r\n{", 1),
    ],
    ids=["shutdown", "exit", "end", "no message", "cut off"],
)
def test_the_exit_status_is_zero_only_after_shutdown(
    messages: list[bytes], rest: bytes, status: int, tmp_path: Path
) -> None:
    with _start(tmp_path) as process:
        for message in messages:
            _exchange(process, message)
        _, said = process.communicate(rest, timeout=60)
    assert (process.returncode, said) == (status, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_in_order(number: signal.Signals, tmp_path: Path) -> None:
    with _start(tmp_path) as process:
        _exchange(process, _initialize())
        process.send_signal(number)
        assert process.wait(20) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""


_EDITOR = (sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])")


def test_the_process_ends_with_the_editor_that_started_it_also_while_its_input_is_open(tmp_path: Path) -> None:
    with _start(tmp_path, *_EDITOR) as editor:
        assert editor.stdout is not None
        _exchange(editor, _initialize(editor.pid))
        editor.kill()
        editor.stdout.read()  # until the language server has ended
