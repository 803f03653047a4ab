import asyncio
import os

import pytest

from lsp_server.stdin_reader import StdinReader


async def _settle_at_once() -> None:
    pass


async def test_lines_and_bytes_arrive_as_they_were_written() -> None:
    read_end, write_end = os.pipe()
    reader = StdinReader(read_end, _settle_at_once)
    os.write(write_end, b"a\r\n\r\n{")
    assert [await reader.readline(), await reader.readline()] == [b"a\r\n", b"\r\n"]
    os.write(write_end, b"}rest")
    os.close(write_end)
    assert await reader.readexactly(2) == b"{}"
    assert [await reader.readline(), await reader.readline()] == [b"rest", b""]
    os.close(read_end)


async def test_a_body_that_breaks_off_is_the_end() -> None:
    read_end, write_end = os.pipe()
    reader = StdinReader(read_end, _settle_at_once)
    os.write(write_end, b"{")
    os.close(write_end)
    assert await reader.readexactly(2) == b""
    os.close(read_end)


async def test_a_message_waits_until_the_one_before_has_settled() -> None:
    read_end, write_end = os.pipe()
    has_settled = False

    async def settle() -> None:
        nonlocal has_settled
        await asyncio.sleep(0)
        has_settled = True

    reader = StdinReader(read_end, settle)
    os.write(write_end, b"a\n{}")
    os.close(write_end)
    await reader.readline()
    assert not has_settled
    assert (await reader.readexactly(2), has_settled) == (b"{}", True)
    os.close(read_end)


async def test_a_descriptor_that_cannot_be_read_is_an_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    reader = StdinReader(write_end, _settle_at_once)  # not open for reading
    with pytest.raises(OSError, match="Bad file descriptor"):
        await reader.readline()
    os.close(write_end)
