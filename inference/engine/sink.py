"""What a caller of the engine hands in and gets: the seam to the engine, the sink for its chunks, a sink that waits."""

from concurrent.futures import Future
from typing import Protocol

from inference.errors import MidtokenError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats


class ChunkSink(Protocol):
    """Receives one request's chunks, on the engine's thread. The final call is one last chunk or one failure."""

    def send(self, chunk: CompletionChunk) -> None:
        """Receives a chunk. There are no calls after one that `is_last`."""

    def fail(self, error: MidtokenError) -> None:
        """Receives the error that replaces the last chunk."""

    def is_cancelled(self) -> bool:
        """True once the client has cancelled the request. Called between steps."""


class CompletionEngine(Protocol):
    """An object that answers completion requests: `Engine`, or a fake in the tests."""

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        """Queues the request; its chunks go to `sink`. Raises OverloadedError or ServerError."""


class WaitingSink:
    """Collects the chunks of a request until it has ended."""

    def __init__(self) -> None:
        self.chunks: list[CompletionChunk] = []
        self._stats: Future[CompletionStats] = Future()

    def send(self, chunk: CompletionChunk) -> None:
        self.chunks.append(chunk)
        if chunk.stats is not None:
            self._stats.set_result(chunk.stats)

    def fail(self, error: MidtokenError) -> None:
        self._stats.set_exception(error)

    def is_cancelled(self) -> bool:
        return False

    def wait(self) -> tuple[str, CompletionStats]:
        """Waits for the end. Returns the first candidate's text, and the statistics.

        Raises the error of a failed request.
        """
        stats = self._stats.result()
        return "".join(chunk.text for chunk in self.chunks if chunk.candidate == 0), stats


def complete(engine: CompletionEngine, request: CompletionRequest) -> tuple[str, CompletionStats]:
    """The first candidate's text and the statistics. Raises the error of a failed request."""
    sink = WaitingSink()
    engine.submit(request, sink)
    return sink.wait()
