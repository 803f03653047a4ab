"""Asks again and again whether requests were cancelled, in a thread of its own.

Each question is a round trip from the model's process to tritonserver, for which the engine would wait at each step.
"""

import logging
import threading
from typing import Protocol

from inference.errors import describe_failure

_log = logging.getLogger(__name__)

_INTERVAL_S = 0.002  # shorter than most steps, so that a cancelled request is gone before the next one
_MAX_ASKED = 2  # in each interval, in turn; to ask for many takes time from the engine


class Watched(Protocol):
    """A request that may be cancelled."""

    def ask(self) -> bool:
        """Asks whether it was cancelled, and notes the answer. Returns whether it is worth asking again."""


class CancelWatch:
    """The requests that are asked for, from when they arrive until they have ended."""

    def __init__(self) -> None:
        """Starts the thread, which waits while there are no requests."""
        self._requests: list[Watched] = []
        self._lock = threading.Lock()
        self._has_requests = threading.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="midtoken-cancels", daemon=True)
        self._thread.start()

    def add(self, request: Watched) -> None:
        """Asks for a request until its `ask` returns False."""
        with self._lock:
            self._requests.append(request)
            self._has_requests.set()

    def close(self) -> None:
        """Stops the thread."""
        self._is_closed.set()
        self._has_requests.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.wait(_INTERVAL_S):
            self._has_requests.wait()
            with self._lock:
                asked, self._requests = self._requests[:_MAX_ASKED], self._requests[_MAX_ASKED:]
            asked = [request for request in asked if _ask(request)]
            with self._lock:
                self._requests += asked
                if not self._requests and not self._is_closed.is_set():
                    self._has_requests.clear()


def _ask(request: Watched) -> bool:
    try:
        return request.ask()
    except Exception as error:  # the other requests must still be asked for
        _log.error("cannot tell whether a request was cancelled: %s", describe_failure(error))
        return False
