"""The gRPC calls of one channel, one for each request. The next one is opened before it is needed.

To open a call takes as long as to answer a heartbeat. So while somebody types, one is always open. It is closed when
it was not needed for a while, because Triton waits for open calls when it shuts down.

A call cannot serve several requests. Triton cancels requests together with their call only, and if a call is cancelled
between two requests, Triton 2.51 keeps a reference to the model; its shutdown then waits until the timeout.
"""

import asyncio
from collections.abc import Callable
from typing import Any  # grpc has no types

_KEPT_S = 2.0  # without a request; longer than somebody who types takes for a key


class CallOpener:
    """Opens calls in the event loop in which it is used."""

    def __init__(self, open_call: Callable[[], Any], kept_s: float = _KEPT_S) -> None:
        """`open_call` opens a call, of type grpc.aio.StreamStreamCall. `kept_s`: how long it is kept unused."""
        self._open_call = open_call
        self._kept_s = kept_s
        self._next: Any = None
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> Any:
        """Returns an open call, or one that is being opened."""
        call = self._next
        if call is None or call.done():  # done: the server has closed it
            return self._open_call()
        self._forget()
        return call

    def open_next(self) -> None:
        """Opens the next call, if it is not open. `close` must be called later."""
        if self._next is None or self._next.done():
            self.close()
            self._next = self._open_call()
            self._timer = asyncio.get_running_loop().call_later(self._kept_s, self.close)

    def close(self) -> None:
        """Closes the call that was not needed. Further calls can be taken."""
        if self._next is not None:
            self._next.cancel()
            self._forget()

    def _forget(self) -> None:
        self._next = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
