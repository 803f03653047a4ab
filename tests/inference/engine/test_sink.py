import dataclasses
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from inference.engine.sink import ChunkSink, complete
from inference.errors import OverloadedError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason

_STATS = CompletionStats(num_tokens=3)


def _complete(act: Callable[[ChunkSink], None]) -> tuple[str, CompletionStats]:
    """What `complete` returns with an engine that calls the function on a thread of its own."""
    engine: Any = SimpleNamespace(submit=lambda _, sink: threading.Timer(0.01, act, (sink,)).start())
    return complete(engine, CompletionRequest("x"))


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

    assert _complete(act) == ("ab", _STATS)


def test_a_failure_is_raised() -> None:
    with pytest.raises(OverloadedError, match="full"):
        _complete(lambda sink: sink.fail(OverloadedError("full")))
