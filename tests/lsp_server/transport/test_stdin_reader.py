import os

import pytest

from lsp_server.transport.stdin_reader import open_descriptor


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


async def test_a_descriptor_that_cannot_be_read_is_an_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = open_descriptor(write_end)  # not open for reading
    with pytest.raises(OSError, match="Bad file descriptor"):
        await stream.readline()
    os.close(write_end)
