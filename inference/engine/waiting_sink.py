"""A completion from an engine in this process, as one blocking call."""

import threading

from inference.engine.engine import Completer
from inference.errors import MidtokenError, ServerError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, Explanation


class WaitingSink:
    """Collects the first candidate's text until the request has ended."""

    def __init__(self) -> None:
        self.explanation: Explanation | None = None  # set by the last chunk, if the request asked for it
        self._ended = threading.Event()
        self._texts: list[str] = []
        self._stats: CompletionStats | None = None
        self._error: MidtokenError | None = None

    def send(self, chunk: CompletionChunk) -> None:
        if chunk.candidate == 0:
            self._texts.append(chunk.text)
        if chunk.is_last:
            self._stats = chunk.stats
            self.explanation = chunk.explanation
            self._ended.set()

    def fail(self, error: MidtokenError) -> None:
        self._error = error
        self._ended.set()

    def is_cancelled(self) -> bool:
        return False

    def wait(self) -> tuple[str, CompletionStats]:
        """Waits for the end; returns the whole text and the statistics. Raises the error of a failed request."""
        self._ended.wait()
        if self._stats is None:
            raise self._error or ServerError("the engine ended a request without its stats")
        return "".join(self._texts), self._stats


def complete(engine: Completer, request: CompletionRequest) -> tuple[str, CompletionStats]:
    """The first candidate's text and the statistics. Raises the error of a failed request."""
    sink = WaitingSink()
    engine.submit(request, sink)
    return sink.wait()
