"""The gRPC channel to a server, and the tensors in its messages.

gRPC connects again by itself when a connection is lost, and another user may listen there by then. So a channel without
TLS leads to a socket in a private folder, or through a gate that checks each new connection to a port.
"""

import asyncio
import contextlib
import errno
import hmac
import secrets
import socket
import sys
from asyncio import timeout
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Any,  # grpc has no types, and a pair of streams is passed as two arguments
    Self,
)

import grpc
import numpy as np
from tritonclient.utils import (
    deserialize_bytes_tensor,
    np_to_triton_dtype,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

from inference.errors import MidtokenError
from inference.protocol.arrays import Array
from inference.proxies import Proxy, find_proxy
from inference.serving.loopback import UNKNOWN_USER, Streams, connect, pass_on
from inference.serving.private_files import open_folder

COMPLETION, CHARACTERS = "completion", "characters"  # the names of the models

Metadata = tuple[tuple[str, str], ...]
_SEPARATOR = "#"  # between the address and the secret
_NUMBER, _CODE = "midtoken-number", "midtoken-code"  # the names of the metadata


@dataclass(frozen=True, slots=True)
class Secret:
    """The secret of the server at one address, which it and its clients show each other that they know.

    It is in files of this user only, and in no message. Every user of the machine can connect to a port on loopback, or
    listen on it once its server has ended. So each call begins with a number of the client's, and a code (HMAC) of it
    with the secret, the address and the side from either side. No text is sent before the client has the server's. The
    address keeps a program that listens at another one from passing the codes on.
    """

    address: str  # host:port
    text: str

    @classmethod
    def create(cls, address: str) -> Self:
        """Returns a new one."""
        return cls(address, secrets.token_hex())

    @classmethod
    def read(cls, url: str) -> Self | None:
        """Returns that in a `url`; None if it has none."""
        address, separator, text = url.partition(_SEPARATOR)
        return cls(address, text) if separator else None

    @property
    def url(self) -> str:
        """The argument of Client: the address with the secret. For no log and no command line."""
        return f"{self.address}{_SEPARATOR}{self.text}"

    def begin(self, number: str) -> Metadata:
        """The metadata that a client begins a call with. `number` is its own, and random."""
        return (_NUMBER, number), (_CODE, self._sign("client", number))

    def answer(self, metadata: Mapping[str, str]) -> Metadata:
        """The metadata that a server answers with; empty if the client's are not right."""
        number = metadata.get(_NUMBER, "")
        is_right = hmac.compare_digest(metadata.get(_CODE, ""), self._sign("client", number))
        return ((_CODE, self._sign("server", number)),) if is_right else ()

    def is_answer(self, number: str, metadata: Mapping[str, str]) -> bool:
        """Returns whether this is what the server answers to `begin(number)`."""
        return hmac.compare_digest(metadata.get(_CODE, ""), self._sign("server", number))

    def _sign(self, side: str, number: str) -> str:
        return hmac.new(self.text.encode(), f"{side} {self.address} {number}".encode(), "sha256").hexdigest()


LIMIT = ("grpc.max_receive_message_length", 2**24)  # bytes; a request has two texts
_OPTIONS = (
    LIMIT,
    # Otherwise a new channel gets the failure of one before it: the path of a socket may be the same, with a descriptor
    # that was closed meanwhile.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 310_000),  # by default, Triton closes a connection that pings more often than each 300 s
    ("grpc.keepalive_timeout_ms", 5_000),  # also for what was sent to be confirmed by the other machine
    ("grpc.min_reconnect_backoff_ms", 3_000),  # how long an attempt to connect may take
    # The times between attempts double and vary at random. By default, they reach two minutes.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
# A proxy of the environment would read what is sent in plain text, even to loopback.
_NO_PROXY = ("grpc.enable_http_proxy", 0)

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


@dataclass(frozen=True, slots=True)
class Tls:
    """Encrypts a connection, and checks that the server has a certificate for its name."""

    ca_certificates: bytes | None = None  # whose certificates are trusted, in PEM; None: gRPC's own list


class Channel:
    """An asynchronous gRPC channel. It connects when it is used."""

    def __init__(self, url: str, tls: Tls | None, is_insecure: bool) -> None:
        """`url`: "host:port", or "unix:" and the path of a socket. Raises OSError.

        Without TLS, the host must be this machine and the port one of this user or of root, unless `is_insecure`.
        """
        self.problem = ""  # why the last connection was not made, where gRPC does not know it
        self._proxy: Proxy | None = None
        self._target = url
        self._is_plain = tls is None and not url.startswith(SOCKET_SCHEME)
        self._resources = contextlib.ExitStack()
        self._gate: asyncio.Future[asyncio.Server] | None = None
        if tls is not None:
            credentials = grpc.ssl_channel_credentials(tls.ca_certificates)
            self._proxy = find_proxy(url.rpartition(":")[0].strip("[]"), "grpc_proxy", "https_proxy", "http_proxy")
            if self._proxy is not None and self._proxy.problem:
                raise OSError(errno.EINVAL, self._proxy.problem)
            proxy = () if self._proxy is None else (("grpc.http_proxy", self._proxy.url),)
            self.grpc = grpc.aio.secure_channel(url, credentials, options=(*_OPTIONS, *proxy))
            return
        if url.startswith(SOCKET_SCHEME):
            path = Path(url.removeprefix(SOCKET_SCHEME))
            url = f"{SOCKET_SCHEME}{self._resources.enter_context(open_folder(path.parent)) / path.name}"
        elif not is_insecure:
            url = self._open_gate()
        self.grpc = grpc.aio.insecure_channel(url, options=(*_OPTIONS, _NO_PROXY))

    def describe_loss(self, details: str) -> str:
        """Returns why there is no server, if `is_lost` says so of an error with these details."""
        known = next((reason for sign, reason in _REASONS.items() if sign in details), "")
        # gRPC puts what it tried before the reason, address by address.
        reason = self.problem or known or details.rpartition(": ")[2]
        reason += f" (through {self._proxy})" if self._proxy else ""
        return f"{reason}; if the server uses TLS, add --tls" if self._is_plain and "closed" in reason else reason

    async def close(self) -> None:
        """Ends its connections."""
        await self.grpc.close()
        self._resources.close()
        if self._gate is not None:
            (await self._gate).close()

    def _open_gate(self) -> str:
        """Returns the URL of a socket of this process, which passes on what it gets.

        gRPC would not say when it connects again, nor wait until the other side is checked.
        """
        if sys.platform != "linux":
            raise OSError(errno.ENOTSUP, UNKNOWN_USER)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("")  # Linux chooses a name, which is in no folder
        listener.listen()
        self._gate = asyncio.ensure_future(asyncio.start_unix_server(self._pass_on, sock=listener))
        return f"unix-abstract:{listener.getsockname()[1:].decode()}"

    async def _pass_on(self, *client: Any) -> None:
        try:
            await pass_on(client, self._reach)
        except (OSError, MidtokenError) as error:
            self.problem = str(error)

    async def _reach(self) -> Streams:
        host, _, port = self._target.rpartition(":")
        streams = await connect(host.strip("[]"), int(port))
        self.problem = ""
        return streams


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
