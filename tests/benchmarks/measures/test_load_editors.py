import asyncio
import time
from collections.abc import AsyncGenerator

import pytest

from benchmarks.load import find_figures
from benchmarks.measures.load_editors import Attempt, Outcome, Phase, PhaseResult, TimedRequest, play
from inference.errors import OverloadedError, ServerError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason


class _Backend:
    """Does what the prefix of a request says."""

    def __init__(self) -> None:
        self.num_cancelled = 0

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
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
                yield CompletionChunk("text", finish_reason=FinishReason.END, stats=CompletionStats())


@pytest.mark.parametrize(
    ("prefixes", "gap_scale", "is_patient", "outcomes", "num_cancelled"),
    [
        (["a", "overload", "fail", "late"], None, False, ["completed", "refused", "failed", "cut"], 0),
        (["hang", "a", "hang", "b"], 1.0, False, ["superseded", "completed", "superseded", "completed"], 2),
        (["hang", "overload", "a"], 1.0, True, ["refused", "completed"], 1),  # cancelled when it leaves
        (["hang"], 1.0, False, [], 1),  # it runs when the phase ends, and is not counted
        (["hang"], None, False, [], 1),
    ],
)
async def test_requests_are_cancelled_and_counted_as_the_phase_says(
    prefixes: list[str], gap_scale: float | None, is_patient: bool, outcomes: list[str], num_cancelled: int
) -> None:
    backend = _Backend()
    late = [TimedRequest(60.0, CompletionRequest("late"))] if is_patient else []  # after the end of the phase
    requests = [TimedRequest(0.0, CompletionRequest(prefix)) for prefix in prefixes]

    attempts = await play(
        backend.stream, iter(requests + late), Phase(time.perf_counter(), 0.4, gap_scale, is_patient=is_patient)
    )

    assert [str(attempt.outcome) for attempt in attempts] == outcomes
    assert backend.num_cancelled == num_cancelled


async def test_recorded_gaps_are_scaled() -> None:
    requests = iter([TimedRequest(gap_s, CompletionRequest("a")) for gap_s in (0.05, 0.1)])
    start_at = time.perf_counter()

    attempts = await play(_Backend().stream, requests, Phase(start_at, 60.0, gap_scale=2.0))

    for attempt, due_s in zip(attempts, (0.1, 0.3), strict=True):
        assert attempt.sent_at >= start_at + due_s


def _completed(num: int) -> list[Attempt]:
    return [Attempt(1.0, 1.5, Outcome.COMPLETED)] * num


def _phase(*by_editor: list[Attempt]) -> PhaseResult:
    return PhaseResult("phase", 10.0, by_editor)


def test_goodput_is_relative_to_the_capacity_shares_to_the_mean_and_refusals_are_those_of_open_loops() -> None:
    refused = [Attempt(1.0, 1.0 + seconds, Outcome.REFUSED) for seconds in (0.01, 0.02)]
    closed = _phase(_completed(60), _completed(40) + refused)
    at_capacity, above = _phase(_completed(40), _completed(40)), _phase(_completed(30), _completed(34))
    far_above, patient = _phase(_completed(2), _completed(38) + refused[:1]), _phase(refused)

    figures = find_figures([closed, at_capacity, above, far_above, patient])

    assert [figures[name] for name in ("capacity_per_s", "goodput_1", "goodput_1_3", "goodput_3", "least_share")] == [
        10, 0.8, 0.64, 0.4, 0.1
    ]  # fmt: skip
    assert [figures["num_refused"], figures["refused_ms_p99"]] == pytest.approx([3, 20], rel=0.05)  # of open loops
