"""Sinks that collect chunks in tests."""

import threading
from collections.abc import Callable

from inference.engine.job import CompletionEngine
from inference.errors import MidtokenError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason


class CollectingSink:
    """A sink that keeps its chunks. `on_chunk` runs on the engine's thread, between two steps."""

    def __init__(self, on_chunk: Callable[[], None] = lambda: None) -> None:
        self.chunks: list[CompletionChunk] = []
        self.error: MidtokenError | None = None
        self.cancelled = threading.Event()
        self._ended = threading.Event()
        self._on_chunk = on_chunk

    def send(self, chunk: CompletionChunk) -> None:
        assert not self._ended.is_set(), "something came after the last chunk"
        self.chunks.append(chunk)
        self._on_chunk()
        if chunk.is_last:
            self._ended.set()

    def fail(self, error: MidtokenError) -> None:
        assert not self._ended.is_set(), "a failure came after the end"
        self.error = error
        self._ended.set()

    def is_cancelled(self) -> bool:
        return self.cancelled.is_set()

    def wait(self) -> "CollectingSink":
        """Waits for the last chunk. Raises the error if the request failed."""
        self.wait_for_end()
        if self.error is not None:
            raise self.error
        return self

    def wait_for_end(self) -> None:
        assert self._ended.wait(60), "no last chunk came"

    @property
    def text(self) -> str:
        """The text of the first candidate."""
        return self.texts[0]

    @property
    def texts(self) -> list[str]:
        """The text of each candidate."""
        joined: dict[int, str] = {}
        for chunk in self.chunks:
            joined[chunk.candidate] = joined.get(chunk.candidate, "") + chunk.text
        return [joined[candidate] for candidate in sorted(joined)]

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.chunks[-1].finish_reason

    @property
    def stats(self) -> CompletionStats:
        assert self.chunks[-1].stats is not None
        return self.chunks[-1].stats


def submit(
    engine: CompletionEngine, request: CompletionRequest, on_chunk: Callable[[], None] = lambda: None
) -> CollectingSink:
    """Submits the request and returns its sink."""
    sink = CollectingSink(on_chunk)
    engine.submit(request, sink)
    return sink


def complete(engine: CompletionEngine, request: CompletionRequest) -> CollectingSink:
    """Submits the request and waits for its answer."""
    return submit(engine, request).wait()
