"""Reads the editor's messages from a stream, and has each handled before the next (LSP, Base Protocol)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from lsp_server.errors import BrokenInputError
from lsp_server.transport.pygls_overrides import MidtokenProtocol

MAX_BODY_BYTES = 64 * 2**20

_log = logging.getLogger(__name__)


async def serve_messages(
    reader: asyncio.StreamReader, protocol: MidtokenProtocol, settle: Callable[[], Awaitable[None]]
) -> int:
    """Returns the exit status after `exit`; 1 at the end of the input, or if it is not LSP, which is logged.

    `settle` is awaited before each message: until then, the one before it may not be done.
    """
    try:
        while (body := await read_body(reader)) is not None:
            await settle()
            protocol.receive(body)
            if protocol.exit_status is not None:
                return protocol.exit_status
    except BrokenInputError as error:
        _log.error("midtoken: %s; the language server ends", error)
    return 1


async def read_body(reader: asyncio.StreamReader) -> bytes | None:
    """Returns the body of the next message; None at the end of the input. Raises BrokenInputError."""
    num_bytes: int | None = None
    is_first = True
    try:
        while line := await reader.readline():
            if line == b"\r\n" and num_bytes is not None:
                return await reader.readexactly(num_bytes)
            if line == b"\r\n" and not is_first:
                raise BrokenInputError("the header of a message has no Content-Length")
            if line != b"\r\n":  # some clients send an empty line after a body
                num_bytes = _read_field(line, num_bytes)
                is_first = False
    except asyncio.IncompleteReadError:
        raise BrokenInputError("the input ended inside a message") from None
    except ValueError:  # longer than the limit of the stream
        raise BrokenInputError("a line of a header is too long") from None
    except OSError as error:
        raise BrokenInputError(f"the input cannot be read: {error.strerror}") from None
    if not is_first:
        raise BrokenInputError("the input ended inside a header")
    return None


def _read_field(line: bytes, num_bytes: int | None) -> int | None:
    """Returns the length that this line of a header says, or else `num_bytes`, the one that was said before."""
    name, blank, value = line.removesuffix(b"\r\n").partition(b": ")
    if not blank or not line.endswith(b"\r\n"):
        raise BrokenInputError("a line of a header is not a name, a colon, a blank, a value and CRLF")
    if name.lower() != b"content-length":
        return num_bytes
    if not value.isdigit():
        raise BrokenInputError("the Content-Length of a message is no number")
    if len(value) > 20 or int(value) > MAX_BODY_BYTES:
        raise BrokenInputError(f"a message is longer than {MAX_BODY_BYTES} bytes")
    return int(value)
