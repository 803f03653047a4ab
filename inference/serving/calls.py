"""The gRPC channel to a server, and its calls: one for each request, and the next one opened before it is needed.

To open a call takes as long as to answer a heartbeat. So while somebody types, one is always open. It is closed when
it was not needed for a while, because Triton waits for open calls when it shuts down.

A call cannot serve several requests. Triton cancels requests together with their call only, and if a call is cancelled
between two requests, Triton 2.51 keeps a reference to the model; its shutdown then waits until the timeout.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any  # grpc has no types

import grpc

_KEPT_S = 2.0  # without a request; longer than somebody who types takes for a key
_OPTIONS = (
    ("grpc.max_send_message_length", -1),  # no limit
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 310_000),  # by default, Triton closes a connection that pings more often than each 300 s
    ("grpc.keepalive_timeout_ms", 20_000),
)
# A proxy of the environment would read what is sent in plain text, even to loopback.
_NO_PROXY = ("grpc.enable_http_proxy", 0)


@dataclass(frozen=True, slots=True)
class Tls:
    """Encrypts a connection, and checks that the server has a certificate for its name."""

    ca_certificates: bytes | None = None  # whose certificates are trusted, in PEM; None: gRPC's own list


def open_channel(url: str, tls: Tls | None) -> Any:
    """Returns an asynchronous channel to `url`, a "host:port". It connects when it is used. None: plain text."""
    if tls is None:
        return grpc.aio.insecure_channel(url, options=(*_OPTIONS, _NO_PROXY))
    return grpc.aio.secure_channel(url, grpc.ssl_channel_credentials(tls.ca_certificates), options=_OPTIONS)


class CallOpener:
    """Opens calls in the event loop in which it is used."""

    def __init__(self, open_call: Callable[[], Any], kept_s: float = _KEPT_S) -> None:
        """`open_call` opens a call, of type grpc.aio.StreamStreamCall. `kept_s`: how long it is kept unused."""
        self._open_call = open_call
        self._kept_s = kept_s
        self._next: Any = None

    def take(self) -> Any:
        """Returns an open call, or one that is being opened."""
        call, self._next = self._next, None
        return self._open_call() if call is None or call.done() else call  # done: the server has closed it

    def open_next(self) -> None:
        """Opens the next call, if it is not open. `close` must be called later."""
        if self._next is None or self._next.done():
            self._next = self._open_call()
            asyncio.get_running_loop().call_later(self._kept_s, self._close, self._next)

    def close(self) -> None:
        """Closes the call that was not needed. Further calls can be taken."""
        self._close(self._next)

    def _close(self, call: Any) -> None:
        if call is not None and call is self._next:
            call.cancel()
            self._next = None
