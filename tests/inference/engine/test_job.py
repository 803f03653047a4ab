import dataclasses

import pytest

from inference.engine.candidate import Candidate, Detokenizer
from inference.engine.job import Job
from inference.engine.job_builder import JobBuilder
from inference.engine.ticket import Ticket
from inference.healing.covering import Crossing, Rule
from inference.protocol.completion import Chunks, CompletionRequest, FinishReason
from tests.support.engine_bench import UNBOUNDED, build_job_builder
from tests.support.sinks import CollectingSink


def _build_job(num_candidates: int = 1, chunks: Chunks = Chunks.TOKENS) -> tuple[Job, CollectingSink]:
    sink = CollectingSink()
    builder: JobBuilder = build_job_builder()
    request = CompletionRequest("x = nam", max_tokens=5, num_candidates=num_candidates, extent=UNBOUNDED, chunks=chunks)
    job = builder.build(Ticket(request, sink, submitted_at=10.0))
    [first] = job.candidates
    job.candidates = [
        dataclasses.replace(first, index=index, detokenizer=Detokenizer(0)) for index in range(num_candidates)
    ]
    return job, sink


def _say(candidate: Candidate, text: str) -> None:
    candidate.accept_token(Crossing(None, b"", Rule.EXTEND), 1, text.encode())


def test_text_is_sent_with_its_candidate_and_the_healed_bytes() -> None:
    job, sink = _build_job(2)
    _say(job.candidates[1], "a")

    job.send_ready(11.0)

    [chunk] = sink.chunks
    assert (chunk.text, chunk.candidate, chunk.healed_bytes) == ("a", 1, job.prompt.num_healed_bytes)
    assert 0 < chunk.healed_bytes <= len(" nam")
    assert not chunk.is_last


@pytest.mark.parametrize(
    ("chunks", "sent"), [(Chunks.TOKENS, ["a", "b", "\n  c ", "\n  d"]), (Chunks.LINES, ["ab", "\n  c \n  d"])]
)
def test_text_is_sent_once_and_only_when_it_is_ready(chunks: Chunks, sent: list[str]) -> None:
    job, sink = _build_job(chunks=chunks)
    for text in ("a", "b", "\n  c ", "\n  d"):
        _say(job.candidates[0], text)
        job.send_ready(11.0)
        job.send_ready(12.0)
    job.finish(FinishReason.LENGTH)
    job.send_ready(13.0)

    assert [chunk.text for chunk in sink.chunks if chunk.text] == sent


def test_the_tokens_of_one_step_are_one_chunk() -> None:
    job, sink = _build_job()
    for text in ("a", "b", "c"):
        _say(job.candidates[0], text)

    job.send_ready(11.0)

    assert [chunk.text for chunk in sink.chunks] == ["abc"]


def test_only_the_chunk_that_ends_the_last_candidate_is_the_last() -> None:
    job, sink = _build_job(2)
    job.candidates[1].finish(FinishReason.END)
    job.send_ready(11.0)
    job.candidates[0].finish(FinishReason.LENGTH)
    job.send_ready(12.0)

    assert [(chunk.candidate, chunk.finish_reason, chunk.is_last) for chunk in sink.chunks] == [
        (1, FinishReason.END, False),
        (0, FinishReason.LENGTH, True),
    ]


def test_the_stats_have_milliseconds_since_the_request_arrived() -> None:
    job, sink = _build_job()
    job.counters.started_at = 10.5
    _say(job.candidates[0], "a\n")
    job.send_ready(11.0)
    job.finish(FinishReason.DEADLINE)
    job.send_ready(12.0)

    assert (sink.stats.queue_ms, sink.stats.first_chunk_ms, sink.stats.total_ms) == (500, 1000, 2000)


def test_a_job_that_never_ran_was_queued_the_whole_time() -> None:
    job, sink = _build_job()
    job.finish(FinishReason.CANCELLED)
    job.send_ready(12.0)

    assert (sink.stats.queue_ms, sink.stats.total_ms) == (2000, 2000)


def test_the_first_failure_is_kept_and_nothing_is_raised() -> None:
    job, _ = _build_job()

    for text in ("first", "second"):
        with job.recording_failure():
            raise RuntimeError(text)

    assert str(job.failure) == "first"


def test_an_exception_that_ends_the_thread_is_not_caught() -> None:
    job, _ = _build_job()

    with pytest.raises(KeyboardInterrupt), job.recording_failure():
        raise KeyboardInterrupt
