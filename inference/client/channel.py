"""The gRPC channel to a server, and the tensors in its messages."""

import asyncio
import contextlib
from asyncio import timeout
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any  # grpc has no types

import grpc
import numpy as np
from tritonclient.utils import (
    deserialize_bytes_tensor,
    np_to_triton_dtype,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

from inference.private_files import open_folder
from inference.protocol.arrays import Array

COMPLETION, CHARACTERS = "completion", "characters"  # the names of the models

Metadata = tuple[tuple[str, str], ...]

LIMIT = ("grpc.max_receive_message_length", 2**24)  # bytes; a request has two texts
_OPTIONS = (
    LIMIT,
    # Otherwise a new channel gets the failure of one before it: the path of a socket may be the same, with a descriptor
    # that was closed meanwhile.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment would read what is sent in plain text, even to loopback
    ("grpc.keepalive_time_ms", 310_000),  # by default, Triton closes a connection that pings more often than each 300 s
    ("grpc.keepalive_timeout_ms", 5_000),  # also for what was sent to be confirmed by the other machine
    ("grpc.min_reconnect_backoff_ms", 3_000),  # how long an attempt to connect may take
    # The times between attempts double and vary at random. By default, they reach two minutes.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

SOCKET_SCHEME = "unix:"
_LOST = "Internal error from Core"  # what gRPC says of a call that was open when its server ended, as code INTERNAL
_REASONS: Mapping[str, str] = {  # in gRPC's words, and in those of a user
    _LOST: "the connection was lost",
    "Socket closed": "the connection was closed",
    "certificate has expired": "its certificate has expired",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted; --tls-ca names the file of its authority",
    "Hostname Verification Check failed": "its certificate is for another name than the one in --server",
    "WRONG_VERSION_NUMBER": "it does not use TLS",
}


class Channel:
    """An asynchronous gRPC channel. It connects when it is used."""

    def __init__(self, url: str, tls_ca: bytes | None) -> None:
        """`url`: "host:port", or "unix:" and the path of a socket, in whose folder only its owner can put one.

        `tls_ca`: whose certificates for the server's name are trusted, in PEM; empty: those on gRPC's own list. None:
        nothing is encrypted. Raises OSError.
        """
        self._is_plain = tls_ca is None and not url.startswith(SOCKET_SCHEME)
        self._resources = contextlib.ExitStack()
        if tls_ca is not None:
            self.grpc = grpc.aio.secure_channel(url, grpc.ssl_channel_credentials(tls_ca or None), options=_OPTIONS)
            return
        if url.startswith(SOCKET_SCHEME):
            path = Path(url.removeprefix(SOCKET_SCHEME))
            url = f"{SOCKET_SCHEME}{self._resources.enter_context(open_folder(path.parent)) / path.name}"
        self.grpc = grpc.aio.insecure_channel(url, options=_OPTIONS)

    def describe_loss(self, details: str) -> str:
        """Returns why there is no server, if `is_lost` says so of an error with these details."""
        known = next((reason for sign, reason in _REASONS.items() if sign in details), "")
        reason = known or details.rpartition(": ")[2]  # gRPC puts what it tried before the reason, address by address
        return f"{reason}; if the server uses TLS, write grpcs://" if self._is_plain and "closed" in reason else reason

    async def close(self) -> None:
        """Ends its connections."""
        await self.grpc.close()
        self._resources.close()


class OpenCall:
    """A call with one request. Cancelling a task that writes or reads does not cancel the call.

    tritonserver 2.51 crashes, or never closes the connection, if a call is cancelled while its answer is under way. So
    a request is cancelled by another message, and each call ends by itself.
    """

    def __init__(self, call: Any) -> None:
        """`call`: of gRPC, on which nothing is written yet."""
        self._call = call
        self._writing: asyncio.Future[None] | None = None
        self._reading: asyncio.Future[Any] | None = None

    async def write(self, message: Any) -> None:
        """Sends the request. Raises RpcError."""
        self._writing = asyncio.ensure_future(self._call.write(message))
        with contextlib.suppress(asyncio.InvalidStateError):  # it has ended already; reading says why
            await asyncio.shield(self._writing)

    async def read(self) -> Any:
        """Returns the next message, or gRPC's EOF. Raises RpcError."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._call.read())
        return await asyncio.shield(self._reading)

    async def end(self, cancel: Any, timeout_s: float) -> bool:
        """Ends the call. Returns whether the server has ended it.

        `cancel`: the message that cancels the request; None if its answer is complete.
        """
        if self._writing is None:  # nothing is under way
            self._call.cancel()
            return False
        try:
            async with timeout(timeout_s):
                await self._writing
                if cancel is not None:
                    await self._call.write(cancel)
                await self._call.done_writing()
                while await self.read() is not grpc.aio.EOF:
                    pass
        except (TimeoutError, grpc.RpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
            self._call.cancel()
            return False
        return True


def is_lost(error: Any) -> bool:
    """Returns whether an RpcError says that there is no server, or no longer."""
    return error.code() is grpc.StatusCode.UNAVAILABLE or error.details() == _LOST


def add_tensors(tensors: Any, contents: Any, arrays: Mapping[str, Array]) -> None:
    """Adds the arrays to the `inputs` and `raw_input_contents` of a message, or to its outputs."""
    for name, array in arrays.items():
        tensors.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        is_bytes = array.dtype == np.object_
        contents.append(b"".join(serialize_byte_tensor(array).reshape(-1)) if is_bytes else array.tobytes())


def read_tensors(tensors: Any, contents: Any) -> dict[str, Array]:
    """The arrays in the `inputs` and `raw_input_contents` of a message, or in its outputs."""
    pairs = zip(tensors, contents, strict=True)
    return {each.name: _unpack(each.datatype, content).reshape(tuple(each.shape)) for each, content in pairs}


def _unpack(datatype: str, content: bytes) -> Array:
    read: Callable[[bytes], Array] = deserialize_bytes_tensor
    return read(content) if datatype == "BYTES" else np.frombuffer(content, triton_to_np_dtype(datatype))
