"""A request inside the engine: its candidates, the sink for its chunks, and its cost."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from inference.engine.candidate import Candidate
from inference.engine.prompt import Prompt
from inference.engine.read_sequence import ReadSequence
from inference.engine.sink import ChunkSink
from inference.model.language_model import RandomSource, Sampling
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, Explanation, FinishReason


@dataclass(slots=True)
class Counters:
    """The cost of a request so far. Times are in seconds of the engine's clock."""

    submitted_at: float
    started_at: float = 0.0
    first_chunk_at: float | None = None
    num_forwards: int = 0
    num_prefill_forwards: int = 0  # passes that prefilled a piece of a long context and chose no token
    num_healing_forwards: int = 0
    num_context_tokens: int = 0
    num_tree_nodes: int = 0
    num_read_tokens: int = 0
    num_first_rows: int = 0
    num_rows: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    num_hot_hits: int = 0
    num_hot_misses: int = 0
    prompt_s: float = 0.0
    model_s: float = 0.0
    choice_s: float = 0.0


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """A request that the engine has accepted."""

    request: CompletionRequest
    sink: ChunkSink
    prompt: Prompt
    counters: Counters
    max_cached_tokens: int  # of one sequence, including the branches of a step
    candidates: list[Candidate]  # before the first choice, one for all candidates
    random_sources: tuple[RandomSource | None, ...]  # one for each candidate
    sequences: list[ReadSequence] = field(default_factory=list)  # one for each of `candidates`; empty until it runs
    explanation: Explanation | None = None
    failure: Exception | None = None  # why it cannot continue

    @property
    def sampling(self) -> Sampling:
        """How its tokens are sampled."""
        return Sampling(self.request.temperature, self.request.top_p)

    @property
    def is_finished(self) -> bool:
        """True when every candidate has ended."""
        return all(candidate.finish_reason for candidate in self.candidates)

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Records an exception raised inside the context as the failure of this job only."""
        try:
            yield
        except Exception as error:
            self.failure = self.failure or error

    def finish(self, reason: FinishReason) -> None:
        """Ends all candidates that have not ended."""
        for candidate in self.candidates:
            candidate.finish(reason)

    def send_ready(self, now: float) -> None:
        """Sends the text that is ready and, when all candidates have ended, the last chunk with the stats."""
        taken = [(candidate, candidate.take_text(self.request.chunks)) for candidate in self.candidates]
        ready = [(each, text) for each, text in taken if text or (each.finish_reason and not each.has_sent_last)]
        for number, (candidate, text) in enumerate(ready, 1):
            is_last = self.is_finished and number == len(ready)
            if self.counters.first_chunk_at is None:
                self.counters.first_chunk_at = now
            candidate.has_sent_last = candidate.finish_reason is not None
            self.sink.send(
                CompletionChunk(
                    text,
                    candidate=candidate.index,
                    healed_bytes=self.prompt.num_healed_bytes,
                    finish_reason=candidate.finish_reason,
                    stats=self._build_stats(now) if is_last else None,
                    explanation=self.explanation if is_last else None,
                )
            )

    def _build_stats(self, now: float) -> CompletionStats:
        counters = self.counters
        started_at = counters.started_at or now
        first_chunk_at = now if counters.first_chunk_at is None else counters.first_chunk_at
        return CompletionStats(
            queue_ms=1e3 * (started_at - counters.submitted_at),
            first_chunk_ms=1e3 * (first_chunk_at - counters.submitted_at),
            total_ms=1e3 * (now - counters.submitted_at),
            num_tokens=sum(len(candidate.token_ids) for candidate in self.candidates),
            num_forwards=counters.num_forwards,
            num_healing_forwards=counters.num_healing_forwards,
            num_context_tokens=counters.num_context_tokens,
            num_tree_nodes=counters.num_tree_nodes,
            num_read_tokens=counters.num_read_tokens,
            num_first_rows=counters.num_first_rows,
            num_drafted=counters.num_drafted,
            num_accepted=counters.num_accepted,
            num_hot_hits=counters.num_hot_hits,
            num_hot_misses=counters.num_hot_misses,
            prompt_ms=1e3 * counters.prompt_s,
            model_ms=1e3 * counters.model_s,
            choice_ms=1e3 * counters.choice_s,
        )
