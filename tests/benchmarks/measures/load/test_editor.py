import asyncio
import itertools
import time
from collections.abc import AsyncGenerator

import pytest

from benchmarks.measures.load.editor import Attempt, Outcome, Phase, TimedRequest, play
from inference.errors import OverloadedError, ServerError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason


class _Backend:
    """Does what the prefix of a request says."""

    def __init__(self) -> None:
        self.prefixes: list[str] = []
        self.num_cancelled = 0

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        self.prefixes.append(request.prefix)
        match request.prefix:
            case "overload":
                raise OverloadedError("too many")
            case "fail":
                raise ServerError("broken")
            case "late":
                yield CompletionChunk("", finish_reason=FinishReason.DEADLINE, stats=CompletionStats())
            case "hang":
                yield CompletionChunk("first line")
                try:
                    await asyncio.Event().wait()
                finally:
                    self.num_cancelled += 1
            case _:
                yield CompletionChunk("")
                yield CompletionChunk("text", finish_reason=FinishReason.END, stats=CompletionStats())

    async def close(self) -> None: ...


async def _play(*prefixes: str, is_open: bool, duration_s: float = 60.0) -> tuple[_Backend, list[Attempt]]:
    backend = _Backend()
    requests = iter([TimedRequest(0.0, CompletionRequest(prefix)) for prefix in prefixes])
    phase = Phase(time.perf_counter(), duration_s, gap_scale=1.0 if is_open else None)
    return backend, await play(backend, requests, phase)


async def test_in_a_closed_loop_each_request_follows_the_answer() -> None:
    _, attempts = await _play("a", "overload", "fail", "late", is_open=False)

    assert [attempt.outcome for attempt in attempts] == [
        Outcome.COMPLETED, Outcome.REFUSED, Outcome.FAILED, Outcome.CUT
    ]  # fmt: skip
    for before, after in itertools.pairwise(attempts):
        assert before.ended_at <= after.sent_at


async def test_the_first_text_is_the_first_chunk_that_has_some() -> None:
    _, [attempt] = await _play("a", is_open=False)
    _, [without] = await _play("late", is_open=False)

    assert attempt.first_text_at is not None
    assert attempt.sent_at < attempt.first_text_at < attempt.ended_at
    assert without.first_text_at is None


async def test_a_patient_client_cancels_nothing_until_it_leaves() -> None:
    backend = _Backend()
    requests = iter(
        [TimedRequest(0.0, CompletionRequest(prefix, document="x")) for prefix in ("hang", "overload", "a")]
    )
    phase = Phase(time.perf_counter(), 0.5, gap_scale=1.0, is_patient=True)

    attempts = await play(backend, itertools.chain(requests, [TimedRequest(60.0, CompletionRequest("late"))]), phase)

    assert sorted(backend.prefixes) == ["a", "hang", "overload"]
    assert {attempt.outcome for attempt in attempts} == {Outcome.REFUSED, Outcome.COMPLETED}
    assert backend.num_cancelled == 1


async def test_in_an_open_loop_the_next_key_cancels_a_request_that_has_not_ended() -> None:
    backend, attempts = await _play("hang", "a", "hang", "b", is_open=True)

    assert backend.prefixes == ["hang", "a", "hang", "b"]
    assert [attempt.outcome for attempt in attempts] == [
        Outcome.SUPERSEDED, Outcome.COMPLETED, Outcome.SUPERSEDED, Outcome.COMPLETED
    ]  # fmt: skip
    assert backend.num_cancelled == 2


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_request_that_runs_when_the_phase_ends_is_cancelled_and_not_counted(is_open: bool) -> None:
    backend, attempts = await _play("hang", is_open=is_open, duration_s=0.2)

    assert attempts == []
    assert backend.num_cancelled == len(backend.prefixes)


async def test_recorded_gaps_are_scaled() -> None:
    backend = _Backend()
    requests = iter([TimedRequest(gap_s, CompletionRequest("a")) for gap_s in (0.1, 0.3)])

    first, second = await play(backend, requests, Phase(time.perf_counter(), 60.0, gap_scale=0.5))

    assert second.sent_at - first.sent_at >= 0.14
