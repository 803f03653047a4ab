"""A request inside the engine, from its arrival to its end.

A job arrives as a request and a sink, and waits. When its turn may come, it gets its prompt: most requests are
superseded before. Then an executor prefills its context, and the first choice gives it its candidates.
"""

import dataclasses
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from inference.engine.candidate import Candidate, CandidateText, Piece, build_stop_conditions
from inference.engine.prompt import Prompt, build_explanation
from inference.errors import MidtokenError, as_failure
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.model.sampler import SampleResult
from inference.protocol.completion import (
    Chunks,
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Explanation,
    FinishReason,
)

_NUM_SEEDS = 2**63


class ChunkSink(Protocol):
    """Receives one request's chunks, on the engine's thread. The final call is one last chunk or one failure."""

    def send(self, chunk: CompletionChunk) -> None:
        """Receives a chunk. There are no calls after one that `is_last`."""

    def fail(self, error: MidtokenError) -> None:
        """Receives the error that replaces the last chunk."""

    def is_cancelled(self) -> bool:
        """True once the client has cancelled the request. Called between steps."""


class ChunkBuffer:
    """Collects the chunks of a request until it has ended."""

    def __init__(self) -> None:
        self.chunks: list[CompletionChunk] = []
        self._stats: Future[CompletionStats] = Future()

    def send(self, chunk: CompletionChunk) -> None:
        self.chunks.append(chunk)
        if chunk.stats is not None:
            self._stats.set_result(chunk.stats)

    def fail(self, error: MidtokenError) -> None:
        self._stats.set_exception(error)

    def is_cancelled(self) -> bool:
        return False

    def wait(self) -> tuple[str, CompletionStats]:
        """Waits for the end. Returns the first candidate's text, and the statistics.

        Raises the error of a failed request.
        """
        stats = self._stats.result()
        return "".join(chunk.text for chunk in self.chunks if chunk.candidate == 0), stats


@dataclass(slots=True, eq=False)
class Job:
    """A request that the engine has accepted."""

    request: CompletionRequest
    sink: ChunkSink
    submitted_at: float  # this and other times are in seconds of the engine's clock
    anticipates_typing: bool = False  # a prefetch for the window after some typing; see `Engine._follow_up`
    is_near: bool = False  # whether its prompt has the near context only
    is_begun: bool = False  # True once an executor works on it
    candidates: list[Candidate] = field(default_factory=list)  # none until the first choice
    costs: CompletionStats = field(default_factory=CompletionStats)
    num_to_prefill: int = 0  # context tokens to forward before the first choice, as far as the executor knows
    num_steps: int = 0  # in which it was, for each candidate; with --engine, rounds in which it waited, too
    failure: BaseException | None = None  # why it cannot continue
    _prompt: Prompt | None = None
    _explanation: Explanation | None = None
    _finish_reason: FinishReason | None = None  # of one that ends without candidates

    @property
    def prompt(self) -> Prompt:
        """The prompt of a prepared job."""
        assert self._prompt is not None, "the engine prepares it before it begins"
        return self._prompt

    @property
    def is_prepared(self) -> bool:
        """True once it has a prompt."""
        return self._prompt is not None

    @property
    def is_finished(self) -> bool:
        """True when every candidate has ended, once there are any, or it has ended without."""
        all_ended = bool(self.candidates) and all(candidate.is_finished for candidate in self.candidates)
        return all_ended or self._finish_reason is not None

    @property
    def max_cached_tokens(self) -> int:
        """The most tokens in one sequence's cache: all branches in the first step, only the chosen ones later."""
        num_later = self.prompt.num_spelling_tokens + self.request.max_tokens
        return len(self.prompt.context_ids) + max(len(self.prompt.tree.branch_ids), num_later)

    @property
    def num_tokens(self) -> int:
        """The token capacity of its caches, all sequences together."""
        return self.request.num_candidates * self.max_cached_tokens

    def is_late(self, now: float) -> bool:
        """True if its deadline has passed at that time."""
        deadline_ms = self.request.deadline_ms
        return deadline_ms is not None and self._measure_ms(now) >= deadline_ms

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Records an exception raised inside the context as the failure of this job only."""
        try:
            yield
        except BaseException as error:
            self.failure = self.failure or as_failure(error)

    def prepare(self, prompt: Prompt, window: int, prompt_ms: float = 0.0) -> None:
        """Gives it its prompt, which took so long. Of the window, the completion has at most what is left beside it."""
        self._prompt = prompt
        left = window - len(prompt.context_ids) - prompt.num_spelling_tokens
        if left < self.request.max_tokens:
            self.request = dataclasses.replace(self.request, max_tokens=left)
        self.costs.prompt_ms, self.costs.was_cut = prompt_ms, prompt.was_cut
        self.costs.num_context_tokens = len(prompt.context_ids)
        self.costs.num_related_tokens = prompt.related.num_tokens
        self.costs.num_tree_nodes = 1 + len(prompt.tree.branch_ids)

    def note_begin(self, now: float) -> None:
        """Notes that an executor begins to work on it."""
        self.is_begun = True
        self.costs.queue_ms = self._measure_ms(now)

    def begin_decode(self, result: SampleResult, tokenizer: LoadedTokenizer) -> list[Candidate]:
        """Gives each of the first choices a candidate, which has still to take it."""
        if self.request.explain:
            self._explanation = build_explanation(tokenizer, self.prompt, result)
        limits = build_stop_conditions(self.request, self.prompt.reads_suffix)
        vocabulary, crossings = tokenizer.vocabulary, self.prompt.covering.crossings
        texts = (CandidateText(limits, len(self.prompt.healed)) for _ in result.choices)
        self.candidates = [Candidate(index, text, vocabulary, crossings) for index, text in enumerate(texts)]
        return self.candidates

    def list_seeds(self) -> list[int | None]:
        """The seed of each candidate. None: one of the system's."""
        seed, num_candidates = self.request.seed, self.request.num_candidates
        return [None if seed is None else (seed + index) % _NUM_SEEDS for index in range(num_candidates)]

    def finish(self, reason: FinishReason) -> None:
        """Ends it before it is complete."""
        self._finish_reason = reason
        for candidate in self.candidates:
            candidate.text.finish(reason)

    def send_ready(self, now: float) -> None:
        """Sends the text that is ready and, when all candidates have ended, the last chunk with the stats."""
        costs, elapsed_ms = self.costs, self._measure_ms(now)
        if self.candidates:
            costs.first_token_ms = costs.first_token_ms or elapsed_ms
        ready = [(each.index, piece) for each in self.candidates if (piece := each.text.pop_ready()) is not None]
        if self._finish_reason is not None and not self.candidates:
            ready = [(0, Piece("", {}, self._finish_reason))]
            costs.queue_ms = costs.queue_ms if self.is_begun else elapsed_ms
        for number, (index, piece) in enumerate(ready, 1):
            is_last = self.is_finished and number == len(ready)
            costs.first_chunk_ms = costs.first_chunk_ms or elapsed_ms
            if self.candidates and (is_last or "\n" in piece.text or self.request.chunks is Chunks.LINES):
                costs.first_line_ms = costs.first_line_ms or elapsed_ms
            num_tokens = sum(candidate.text.num_new for candidate in self.candidates)
            stats = dataclasses.replace(costs, total_ms=elapsed_ms, num_tokens=num_tokens) if is_last else None
            self.sink.send(
                CompletionChunk(
                    piece.text,
                    candidate=index,
                    text_ends=(*piece.ends.keys(),),
                    log_probs=(*piece.ends.values(),),
                    healed_bytes=self.prompt.num_healed_bytes if self.is_begun else 0,
                    finish_reason=piece.finish_reason,
                    stats=stats,
                    explanation=self._explanation if is_last else None,
                )
            )

    def _measure_ms(self, now: float) -> float:
        """The milliseconds since it arrived."""
        return 1e3 * (now - self.submitted_at)
