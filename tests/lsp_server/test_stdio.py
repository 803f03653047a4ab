"""The stream of the editor's messages: which bytes are messages, and when the server and its process end."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lsp_server.stdio import MAX_BODY_BYTES, open_descriptor, read_body, serve_messages
from tests.support.lsp_in_process import InProcess, run_in_process

_ROOT = Path(__file__).parents[2]


def _frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def _write(method: str, **members: Any) -> bytes:
    return _frame(json.dumps({"jsonrpc": "2.0", "method": method, **members}).encode())


def _initialize(process_id: int | None = None) -> bytes:
    return _write("initialize", id=1, params={"capabilities": {}, "processId": process_id, "rootUri": None})


_ALL = _initialize() + _write("shutdown", id=2) + _write("exit")


def _build_reader(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


@pytest.mark.parametrize(
    ("data", "status"),
    [(_ALL, 0), (_initialize() + _write("exit"), 1), (_initialize(), 1), (b"", 1)],
    ids=["shutdown", "exit", "end", "nothing"],
)
async def test_exit_status_is_zero_only_after_shutdown(data: bytes, status: int, both: InProcess) -> None:
    assert await serve_messages(_build_reader(data), both.server.protocol, both.server.settle) == status


@pytest.mark.parametrize(
    "data",
    [
        b"Content-Length: 2\r\n\r\n{}",
        b"content-length:2\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n{}",
        b"\r\n\r\nContent-Length: 2\r\n\r\n{}",  # empty lines after the body before
    ],
)
async def test_a_message_is_read_by_its_length(data: bytes) -> None:
    reader = _build_reader(data + b"Content-Length: 0\r\n\r\n")
    assert [await read_body(reader), await read_body(reader), await read_body(reader)] == [b"{}", b"", None]


_NO_LENGTH = "a message has no Content-Length of at most 67108864 bytes"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"Content-Length: 2\n\n{}", "the input ended inside a message"),
        (b"Content-Type: x\r\n\r\n{}", _NO_LENGTH),
        (b"Content-Length: two\r\n\r\n{}", _NO_LENGTH),
        (b"Content-Length: -2\r\n\r\n{}", _NO_LENGTH),
        (b"X-Content-Length: 2\r\n\r\n{}", _NO_LENGTH),
        (b"Content-Length: %d\r\n\r\n{}" % (MAX_BODY_BYTES + 1), _NO_LENGTH),
        (b"Content-Length: " + b"9" * 10_000 + b"\r\n\r\n{}", _NO_LENGTH),
        (b"Content-Length: 2\r\n\r\n{", "the input ended inside a message"),
        (b"Content-Length: 2", "the input ended inside a message"),
        (b"X: 1\r\n" * 100_000 + b"Content-Length: 2\r\n\r\n{}", "a header is too long"),
        (b"x" * 100_000, "a header is too long"),
    ],
)
async def test_input_that_is_not_lsp_is_logged_and_ends_the_server(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = InProcess().server
    assert await serve_messages(_build_reader(data), server.protocol, server.settle) == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith(f"midtoken: {reason}")
    assert record.getMessage().endswith("; the language server ends")


async def test_input_that_cannot_be_read_has_ended() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    assert await read_body(open_descriptor(write_end)) is None  # not open for reading
    os.close(write_end)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"7", b"[" * 100_000], ids=lambda body: repr(body[:2]))
async def test_a_message_that_is_no_json_object_is_skipped(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    server = InProcess().server
    reader = _build_reader(_frame(body) + _write("exit"))
    assert await serve_messages(reader, server.protocol, server.settle) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "midtoken: received a message that is not a JSON object"
    ]


_PARENT = os.getppid()


@pytest.mark.parametrize(
    ("process_id", "known"),
    [(None, None), (2**80, None), (os.getpid(), None), (_PARENT, _PARENT)],
    ids=["none", "no process", "another process", "the parent"],
)
async def test_a_process_that_is_not_the_parent_is_not_the_editor(process_id: int | None, known: int | None) -> None:
    async with run_in_process() as both:
        await both.exchange("initialize", {"capabilities": {}, "processId": process_id})
        assert both.server.editor_id == known


def _start(folder: Path, *wrapper: str) -> "subprocess.Popen[bytes]":
    """Starts the language server's process. `wrapper`: the beginning of a command that starts it as a child."""
    script = folder / "script.json"
    script.write_text(json.dumps({"rules": [], "log": str(folder / "log")}))
    command, pipe = [*wrapper, sys.executable, "-m", "tests.support.scripted_server", str(script)], subprocess.PIPE
    return subprocess.Popen(command, cwd=_ROOT, stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [(_ALL, 0, b""), (_initialize() + b"Content-Length: 100000000000\r\n\r\nsecret", 1, _NO_LENGTH.encode())],
    ids=["shutdown", "not LSP"],
)
def test_the_process_ends_with_its_input_and_says_why_in_one_line(
    data: bytes, status: int, reason: bytes, tmp_path: Path
) -> None:
    with _start(tmp_path) as process:
        _, said = process.communicate(data, timeout=60)
    line = b"midtoken: %s; the language server ends\n" % reason if reason else b""
    assert (process.returncode, said) == (status, line)


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


def _exchange(process: "subprocess.Popen[bytes]", message: bytes) -> None:
    """Writes a message, and returns when an answer begins."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(message)
    process.stdin.flush()
    assert process.stdout.readline().startswith(b"Content-Length: ")
