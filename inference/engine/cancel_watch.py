"""Asks again and again whether requests were cancelled, in a thread of its own.

Each question is a round trip from the model's process to tritonserver, for which the engine would wait at each step.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable

from inference.errors import describe_failure

_log = logging.getLogger(__name__)

_PAUSE_S = 0.001  # between two questions: a cancelled request is gone before its next step, and the engine has its time

Ask = Callable[[], bool]  # asks whether a request was cancelled, and notes the answer; False: needs no other question


class CancelWatch:
    """The requests that are asked for in turn, from when they arrive until they have ended."""

    def __init__(self) -> None:
        """Starts the thread, which waits while there are no requests."""
        self._requests: queue.SimpleQueue[Ask | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="midtoken-cancels", daemon=True)
        self._thread.start()

    def add(self, request: Ask) -> None:
        """Asks for a request until the answer is False."""
        self._requests.put(request)

    def close(self) -> None:
        """Stops the thread."""
        self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            if _ask(request):
                self._requests.put(request)
            time.sleep(_PAUSE_S)


def _ask(request: Ask) -> bool:
    try:
        return request()
    except Exception as error:  # the other requests must still be asked for
        _log.error("cannot tell whether a request was cancelled: %s", describe_failure(error))
        return False
