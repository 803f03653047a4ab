"""Reads stdin. pygls's own reader takes three changes of threads for each message, this one takes one."""

import asyncio
import os
import threading

_NUM_BYTES = 2**16  # read at once


def open_descriptor(descriptor: int) -> asyncio.StreamReader:
    """Returns a stream of what a file descriptor delivers: a pipe, a terminal, a socket or a file.

    A thread reads it, which ends with the process. Must be called in the event loop in which the stream is used.
    """
    stream, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    threading.Thread(target=_read, args=(descriptor, stream, loop), name="midtoken-stdin", daemon=True).start()
    return stream


def _read(descriptor: int, stream: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
    try:
        while data := os.read(descriptor, _NUM_BYTES):
            loop.call_soon_threadsafe(stream.feed_data, data)
        loop.call_soon_threadsafe(stream.feed_eof)
    except RuntimeError:  # the loop is closed, so nobody reads
        return
    except OSError as error:
        loop.call_soon_threadsafe(stream.set_exception, error)
