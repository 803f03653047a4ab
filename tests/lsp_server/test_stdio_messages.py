"""The stream of the editor's messages: which bytes are messages, and in which order they are handled."""

import asyncio
import json
import logging
import os

import pytest

from lsp_server.errors import BrokenInputError
from lsp_server.stdio import MAX_BODY_BYTES, open_descriptor, read_body, serve_messages
from tests.support.lsp_in_process import InProcess


def build_reader(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


@pytest.mark.parametrize(
    "data",
    [
        b"Content-Length: 2\r\n\r\n{}",
        b"content-length: 2\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n{}",
        b"\r\n\r\nContent-Length: 2\r\n\r\n{}",  # empty lines after the body before
    ],
)
async def test_a_message_is_read_by_its_length(data: bytes) -> None:
    reader = build_reader(data + b"Content-Length: 0\r\n\r\n")
    assert [await read_body(reader), await read_body(reader), await read_body(reader)] == [b"{}", b"", None]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"Content-Length:2\r\n\r\n{}", "a line of a header is not"),
        (b"Content-Length: 2\n\n{}", "a line of a header is not"),
        (b'{"jsonrpc": "2.0"}\n', "a line of a header is not"),
        *(
            (b"%s\r\n\r\n{}" % field, "a message has no Content-Length of at most 67108864 bytes")
            for field in (
                *(b"Content-Type: x", b"Content-Length: two", b"Content-Length: -2", b"X-Content-Length: 2"),
                *(b"Content-Length: %d" % (MAX_BODY_BYTES + 1), b"Content-Length: " + b"9" * 10_000),
            )
        ),
        (b"Content-Length: 2\r\n\r\n{", "the input ended inside a message"),
        (b"Content-Length: 2", "a line of a header is not"),
        (b"Content-Length: 2\r\n", "a line of a header is not"),
        (b"x" * 100_000, "a line of a header is too long"),
    ],
)
async def test_input_that_is_not_lsp_is_logged_and_ends_the_server(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BrokenInputError, match=reason):
        await read_body(build_reader(data))
    server = InProcess().server
    assert await serve_messages(build_reader(data), server.protocol, server.settle) == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith(f"midtoken: {reason}")
    assert record.getMessage().endswith("; the language server ends")


async def test_input_that_cannot_be_read_ends_the_server() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with pytest.raises(BrokenInputError, match="the input cannot be read: Bad file descriptor"):
        await read_body(open_descriptor(write_end))  # not open for reading
    os.close(write_end)


async def test_a_message_waits_until_the_one_before_has_settled() -> None:
    events: list[str] = []
    server = InProcess().server

    async def settle() -> None:
        await asyncio.sleep(0)
        events.append("settled")

    server.protocol.receive = lambda body: events.append(json.loads(body))  # type: ignore[method-assign]
    data = b'Content-Length: 3\r\n\r\n"a"Content-Length: 3\r\n\r\n"b"'
    assert await serve_messages(build_reader(data), server.protocol, settle) == 1
    assert events == ["settled", "a", "settled", "b"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"7", b"[" * 100_000])
async def test_a_message_that_is_no_json_object_is_skipped(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    server = InProcess().server
    exit_body = b'{"jsonrpc": "2.0", "method": "exit"}'
    data = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(part), part) for part in (body, exit_body))
    assert await serve_messages(build_reader(data), server.protocol, server.settle) == 1
    assert [record.getMessage() for record in caplog.records] == ["midtoken: received a message that is no JSON object"]


async def test_lines_and_bytes_arrive_as_they_were_written() -> None:
    read_end, write_end = os.pipe()
    stream = open_descriptor(read_end)
    os.write(write_end, b"a\r\n\r\n{")
    assert [await stream.readline(), await stream.readline()] == [b"a\r\n", b"\r\n"]
    os.write(write_end, b"}rest")
    os.close(write_end)
    assert await stream.readexactly(2) == b"{}"
    assert [await stream.readline(), await stream.readline()] == [b"rest", b""]
    os.close(read_end)
