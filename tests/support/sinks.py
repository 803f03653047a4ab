"""Sinks that collect chunks and answers in tests."""

import threading
import time
from collections.abc import Callable

from inference.engine.engine import Engine
from inference.errors import MidtokenError
from inference.protocol.characters import CharacterAnswer
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


def submit(engine: Engine, request: CompletionRequest, on_chunk: Callable[[], None] = lambda: None) -> CollectingSink:
    """Submits the request and returns its sink."""
    sink = CollectingSink(on_chunk)
    engine.submit(request, sink)
    return sink


def complete(engine: Engine, request: CompletionRequest) -> CollectingSink:
    """Submits the request and waits for its answer."""
    return submit(engine, request).wait()


class AnswerSink:
    """Records how its request ended."""

    def __init__(self) -> None:
        self.answers: list[CharacterAnswer] = []
        self.errors: list[tuple[type[MidtokenError], str]] = []
        self.cancelled = False
        self.raises_on_send = False
        self._ended = threading.Event()

    def send(self, answer: CharacterAnswer) -> None:
        if self.raises_on_send:
            raise ValueError
        self.answers.append(answer)
        self._ended.set()

    def fail(self, error: MidtokenError) -> None:
        self.errors.append((type(error), str(error)))
        self._ended.set()

    def is_cancelled(self) -> bool:
        return self.cancelled

    def wait(self) -> "AnswerSink":
        """Waits until the request has ended. Returns itself."""
        assert self._ended.wait(30), "the request never ended"
        return self

    @property
    def error(self) -> str:
        """The text of the one error."""
        [(_, text)] = self.wait().errors
        return text


def wait_until_soon(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)
