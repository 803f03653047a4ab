from collections.abc import Sequence

import pytest

from inference.config import MIN_PROMPT_TOKENS
from inference.engine.answer import Answer
from inference.engine.job import Candidate, EngineParts, Job
from inference.engine.stopping import LineRule
from inference.errors import InvalidRequestError
from inference.protocol.completion import Chunks, CompletionRequest, Extent, FinishReason, Healing
from tests.support.engine_bench import UNBOUNDED, begin_job, build_parts
from tests.support.sinks import CollectingSink


def _build_job(num_candidates: int = 1, chunks: Chunks = Chunks.TOKENS) -> tuple[Job, CollectingSink]:
    sink = CollectingSink()
    request = CompletionRequest("x = nam", max_tokens=5, num_candidates=num_candidates, extent=UNBOUNDED, chunks=chunks)
    job = begin_job(build_parts(), request, sink)
    [first] = job.candidates
    job.candidates = [
        Candidate(job, index, first.sequence, first.tree, first.crossings, Answer(first.answer.limits))
        for index in range(num_candidates)
    ]
    return job, sink


def _say(candidate: Candidate, *texts: str) -> None:
    for text in texts:
        candidate.answer.add(text.encode())


def _prepare(request: CompletionRequest, parts: EngineParts | None = None) -> Job:
    job = Job(request, CollectingSink(), parts or build_parts(), submitted_at=10.0)
    job.prepare()
    return job


def test_the_text_of_a_step_is_one_chunk_with_its_candidate_and_the_healed_bytes() -> None:
    job, sink = _build_job(2)
    _say(job.candidates[1], "a", "b")

    job.send_ready(11.0)

    [chunk] = sink.chunks
    assert (chunk.text, chunk.candidate, chunk.healed_bytes) == ("ab", 1, job.prompt.num_healed_bytes)
    assert 0 < chunk.healed_bytes <= len(" nam")
    assert not chunk.is_last


@pytest.mark.parametrize(
    ("chunks", "sent"), [(Chunks.TOKENS, ["a", "b", "\n  c ", "\n  d"]), (Chunks.LINES, ["ab", "\n  c \n  d"])]
)
def test_text_is_sent_once_and_only_when_it_is_ready(chunks: Chunks, sent: Sequence[str]) -> None:
    job, sink = _build_job(chunks=chunks)
    for text in ("a", "b", "\n  c ", "\n  d"):
        _say(job.candidates[0], text)
        job.send_ready(11.0)
        job.send_ready(12.0)
    job.end(FinishReason.LENGTH, 13.0)

    assert [chunk.text for chunk in sink.chunks if chunk.text] == sent


def test_the_last_chunk_has_the_stats_in_milliseconds_since_the_request_arrived() -> None:
    job, sink = _build_job(2)
    job.costs.queue_ms = 500
    job.candidates[1].answer.finish(FinishReason.END)
    job.send_ready(11.0)
    job.end(FinishReason.DEADLINE, 12.0)

    assert [(chunk.candidate, chunk.finish_reason, chunk.is_last) for chunk in sink.chunks] == [
        (1, FinishReason.END, False),
        (0, FinishReason.DEADLINE, True),
    ]
    assert (sink.stats.queue_ms, sink.stats.first_chunk_ms, sink.stats.total_ms) == (500, 1000, 2000)


def test_a_job_that_never_ran_was_queued_the_whole_time() -> None:
    sink = CollectingSink()
    Job(CompletionRequest("x"), sink, build_parts(), submitted_at=10.0).end(FinishReason.CANCELLED, 12.0)

    [chunk] = sink.chunks
    assert (chunk.text, chunk.finish_reason, chunk.is_last) == ("", FinishReason.CANCELLED, True)
    assert (sink.stats.queue_ms, sink.stats.total_ms) == (2000, 2000)


def test_the_first_failure_is_kept_and_only_what_ends_the_thread_is_raised() -> None:
    job, _ = _build_job()

    for text in ("first", "second"):
        with job.recording_failure():
            raise RuntimeError(text)

    assert str(job.failure) == "first"
    with pytest.raises(KeyboardInterrupt), job.recording_failure():
        raise KeyboardInterrupt


def test_a_job_begins_with_one_empty_candidate() -> None:
    request = CompletionRequest("x = nam", max_tokens=5, stop=("y",), extent=Extent.SINGLE_LINE, num_candidates=3)

    job = begin_job(build_parts(), request)

    [first] = job.candidates
    limits = first.answer.limits
    assert (limits.max_tokens, limits.stops, limits.extent) == (5, ("y",), LineRule())
    assert first.tree.chain_ids == job.prompt.context_ids
    assert first.crossings == job.prompt.covering.crossings
    assert job.costs.num_context_tokens == len(job.prompt.context_ids)
    assert job.costs.num_tree_nodes == 1 + len(first.tree.branch_ids) > 1


@pytest.mark.parametrize(("window", "limit", "room"), [(100, 1024, 95), (100, 50, 50)])
def test_the_prompts_room_is_limited_by_the_window_and_the_configuration(window: int, limit: int, room: int) -> None:
    request = CompletionRequest("name = 1\n" * 100, max_tokens=5, healing=Healing.NONE)

    job = _prepare(request, build_parts(window, max_context_tokens=limit))

    assert 3 * room // 8 < len(job.prompt.context_ids) <= room


def test_max_tokens_that_leave_no_room_for_a_prompt_are_refused_with_the_numbers() -> None:
    parts = build_parts(100)
    _prepare(CompletionRequest("", max_tokens=100 - MIN_PROMPT_TOKENS), parts)

    with pytest.raises(InvalidRequestError) as caught:
        _prepare(CompletionRequest("", max_tokens=85), parts)
    assert str(caught.value) == (
        "max_tokens is 85; the model sees 100 tokens in all, and 16 of them at least are for the prompt"
    )


@pytest.mark.parametrize(
    ("temperature", "seed", "seeds"),
    [(0.0, 7, (None,) * 3), (1.0, 7, (7, 8, 9)), (1.0, 2**63 - 2, (2**63 - 2, 2**63 - 1, 0))],
)
def test_each_sampled_candidate_has_a_seed_of_its_own(
    temperature: float, seed: int, seeds: tuple[int | None, ...]
) -> None:
    request = CompletionRequest("x", num_candidates=3, temperature=temperature, seed=seed)

    assert _prepare(request).random_sources == seeds
