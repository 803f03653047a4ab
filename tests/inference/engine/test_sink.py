import dataclasses
import threading
from collections.abc import Callable

import pytest

from inference.engine.sink import ChunkSink, complete
from inference.errors import OverloadedError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason

_STATS = CompletionStats(num_tokens=3)


class _Engine:
    """Calls the test's function for each request, on its own thread."""

    runs_as = ""

    def __init__(self, act: Callable[[ChunkSink], None]) -> None:
        self._act = act

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        assert request == CompletionRequest("x")
        assert not sink.is_cancelled()
        threading.Timer(0.01, self._act, (sink,)).start()

    def measure_heartbeat_ms(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


_OTHER = CompletionChunk("other", candidate=1, finish_reason=FinishReason.END)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (_OTHER, CompletionChunk("b", finish_reason=FinishReason.END, stats=_STATS)),
        (CompletionChunk("b", finish_reason=FinishReason.END), dataclasses.replace(_OTHER, stats=_STATS)),
    ],
)
def test_the_first_candidates_text_and_the_stats_are_returned_whoever_ends_last(
    first: CompletionChunk, last: CompletionChunk
) -> None:
    def act(sink: ChunkSink) -> None:
        for chunk in (CompletionChunk("a"), first, last):
            sink.send(chunk)

    assert complete(_Engine(act), CompletionRequest("x")) == ("ab", _STATS)


def test_a_failure_is_raised() -> None:
    with pytest.raises(OverloadedError, match="full"):
        complete(_Engine(lambda sink: sink.fail(OverloadedError("full"))), CompletionRequest("x"))
