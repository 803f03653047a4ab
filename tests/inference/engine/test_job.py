import dataclasses
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from inference.engine.engine import complete
from inference.engine.job import ChunkSink, Job
from inference.model.sampler import SampledToken, SampleResult
from inference.protocol.completion import (
    Chunks,
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    FinishReason,
    Healing,
)
from tests.support.engine_bench import UNBOUNDED, begin_job, build_executor, open_scripted_bench
from tests.support.sinks import CollectingSink, submit


def test_text_is_sent_once_when_it_is_ready_and_the_last_chunk_has_the_times_since_the_request_arrived() -> None:
    sink, request = CollectingSink(), CompletionRequest("x = nam", extent=UNBOUNDED, chunks=Chunks.LINES)
    executor = build_executor()
    job = begin_job(executor, request, sink)
    choice = SampledToken(job.prompt.covering.crossings[0], 0)
    _, second = job.begin_decode(SampleResult((choice, choice)), executor._tokenizer)
    second.text.skip_healed(len(job.prompt.healed))
    job.costs.queue_ms = 500
    for text, now in ((b"a", 10.5), (b"b\n  c", 11.0), (b" \n  d", 11.5)):
        second.text.add(text)
        job.send_ready(now)
    second.text.finish(FinishReason.END)
    job.finish(FinishReason.DEADLINE)
    job.send_ready(12.0)

    assert [(chunk.text, chunk.candidate, chunk.finish_reason, chunk.is_last) for chunk in sink.chunks] == [
        ("ab", 1, None, False),
        ("", 0, FinishReason.DEADLINE, False),
        ("\n  c \n  d", 1, FinishReason.END, True),
    ]
    assert {chunk.healed_bytes for chunk in sink.chunks} == {job.prompt.num_healed_bytes}
    assert 0 < job.prompt.num_healed_bytes <= len(" nam")
    assert (sink.stats.queue_ms, sink.stats.first_chunk_ms, sink.stats.total_ms) == (500, 1000, 2000)


def test_a_job_that_never_ran_was_queued_the_whole_time() -> None:
    sink = CollectingSink()
    job = Job(CompletionRequest("x"), sink, submitted_at=10.0)
    job.finish(FinishReason.CANCELLED)
    job.send_ready(12.0)

    [chunk] = sink.chunks
    assert (chunk.text, chunk.finish_reason, chunk.is_last) == ("", FinishReason.CANCELLED, True)
    assert (sink.stats.queue_ms, sink.stats.total_ms) == (2000, 2000)


@pytest.mark.parametrize(("window", "limit", "room"), [(100, 1024, 95), (100, 50, 50)])
def test_the_prompts_room_is_limited_by_the_window_and_the_configuration(window: int, limit: int, room: int) -> None:
    request = CompletionRequest("name = 1\n" * 100, max_tokens=5, healing=Healing.NONE)

    with open_scripted_bench(window, max_context_tokens=limit) as bench:
        stats = submit(bench.engine, request).wait().stats

    assert 3 * room // 8 < stats.num_context_tokens <= room


@pytest.mark.parametrize(("num_names", "was_cut"), [(5, False), (16, False), (50, True), (1000, True)])
def test_of_a_window_a_limit_beyond_it_takes_a_part_and_is_what_fits_beside_the_prompt(
    num_names: int, was_cut: bool
) -> None:
    text = "name0" * num_names
    request = CompletionRequest(text, max_tokens=1024, extent=UNBOUNDED, healing=Healing.NONE)
    with open_scripted_bench(100) as bench:
        sink = submit(bench.engine, request).wait()
    assert (sink.finish_reason, sink.stats.was_cut) == (FinishReason.LENGTH, was_cut)
    assert sink.stats.num_context_tokens + sink.stats.num_tokens == 100
    assert 25 <= sink.stats.num_tokens <= (55 if was_cut else 85)


@pytest.mark.parametrize(
    ("seed", "seeds"), [(7, [7, 8, 9]), (2**63 - 2, [2**63 - 2, 2**63 - 1, 0]), (None, 3 * [None])]
)
def test_each_candidate_has_a_seed_of_its_own(seed: int | None, seeds: list[int | None]) -> None:
    request = CompletionRequest("x", num_candidates=3, seed=seed)

    assert Job(request, CollectingSink(), submitted_at=10.0).list_seeds() == seeds


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
