"""The language server as a process with LSP on stdin and stdout, which an editor starts."""

import asyncio
import gc
import logging
import os
import re
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

from pygls.io_ import StdoutWriter

from inference.platforms import call_at_signals
from lsp_server.errors import BrokenInputError
from lsp_server.protocol import MidtokenProtocol
from lsp_server.server import MidtokenServer

_NUM_BYTES = 2**16  # read at once
_ANSWERS_S = 0.5  # for the answers to what is cancelled at the end


def open_descriptor(descriptor: int) -> asyncio.StreamReader:
    """Returns a stream of what a file descriptor delivers: a pipe, a terminal, a socket or a file.

    A thread reads it, which ends with the process. Must be called in the event loop in which the stream is used.
    """
    stream, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    threading.Thread(target=_read, args=(descriptor, stream, loop), name="midtoken-stdin", daemon=True).start()
    return stream


def _read(descriptor: int, stream: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
    with suppress(RuntimeError):  # the loop is closed, so nobody reads
        with suppress(OSError):  # what cannot be read has ended
            while data := os.read(descriptor, _NUM_BYTES):
                loop.call_soon_threadsafe(stream.feed_data, data)
        loop.call_soon_threadsafe(stream.feed_eof)


MAX_BODY_BYTES = 64 * 2**20
_LENGTH = re.compile(rb"^content-length: *(\d{1,20})\r$", re.IGNORECASE | re.MULTILINE)

_log = logging.getLogger(__name__)


async def serve_messages(
    reader: asyncio.StreamReader, protocol: MidtokenProtocol, settle: Callable[[], Awaitable[None]]
) -> int:
    """Returns the exit status after `exit`; 1 at the end of the input, or if it is not LSP, which is logged.

    pygls's own reader takes three changes of threads for each message, this one takes one.

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
    header = b""
    try:
        while not header.strip():  # some clients send empty lines after a body
            header = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(header)
        if length is None or int(length[1]) > MAX_BODY_BYTES:
            raise BrokenInputError(f"a message has no Content-Length of at most {MAX_BODY_BYTES} bytes")
        return await reader.readexactly(int(length[1]))
    except asyncio.IncompleteReadError as error:
        if not header.strip() and not error.partial.strip():
            return None
        raise BrokenInputError("the input ended inside a message") from None
    except asyncio.LimitOverrunError:
        raise BrokenInputError("a header is too long") from None


def serve_stdio(server: MidtokenServer) -> NoReturn:
    """Serves LSP on stdin and stdout until the editor sends `exit`, closes stdin or ends, or SIGINT or SIGTERM.

    Then it ends the process. The exit status is 0 only for `exit` after `shutdown`.
    """
    asyncio.run(_serve(server))


async def _wait_for_end(find_id: Callable[[], int | None]) -> None:
    """Returns when the editor, the parent process, has ended; never while `find_id` returns none.

    That matters only if another process holds stdin open. A process whose parent has ended gets another one.
    """
    while find_id() in (None, os.getppid()):
        await asyncio.sleep(1.0)


async def _serve(server: MidtokenServer) -> NoReturn:
    sys.setswitchinterval(0.001)  # a thread that parses rules must not hold up a key for 5 ms at each of its steps
    gc.freeze()  # what the imports have made stays; to look at it again and again would delay keys by 10 ms
    server.protocol.set_writer(StdoutWriter(sys.stdout.buffer))
    reader = open_descriptor(sys.stdin.fileno())
    serving = asyncio.create_task(serve_messages(reader, server.protocol, server.settle))
    watching = asyncio.create_task(_wait_for_end(lambda: server.editor_id))
    call_at_signals(watching.cancel, "SIGINT", "SIGTERM")
    await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
    watching.cancel()
    serving.cancel()
    await server.close_all()  # which cancels what is open
    await server.protocol.answer_all(_ANSWERS_S)
    status = serving.result() if serving.done() and not serving.cancelled() else 1
    os._exit(status)  # Python would take 0.2 s more to tear everything down, and editors kill a server that is slow
