"""The engine: one thread that admits requests, steps them together and sends what they say."""

import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from inference.config import EngineConfig
from inference.engine.candidate import Candidate, Limits
from inference.engine.detokenizer import Detokenizer
from inference.engine.explanation import build_explanation
from inference.engine.job import ChunkSink, Counters, Job
from inference.engine.prompt import PromptBuilder
from inference.engine.scheduler import Scheduler
from inference.engine.stopping import build_extent_rule
from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import (
    Choice,
    LanguageModel,
    RandomSource,
    SampleRequest,
    SampleResult,
    SequenceCache,
    Step,
)
from inference.protocol.completion import CompletionRequest, FinishReason

_log = logging.getLogger(__name__)

_PREFILL_TOKENS = 512  # context tokens that one request reads in a step, so that it holds up the others briefly
_MIN_CONTEXT_TOKENS = 16


class Completer(Protocol):
    """What answers completion requests. `Engine` does, and so does a fake in the tests."""

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        """Takes the request on; its chunks go to `sink`. Raises OverloadedError."""
        ...

    def close(self) -> None:
        """Ends what is in flight and the thread."""
        ...


@dataclass(frozen=True, slots=True)
class _Turn:
    """One sequence's part in a step."""

    job: Job
    candidate: Candidate
    step: Step


class Engine:
    """Completes text with one model."""

    def __init__(
        self,
        config: EngineConfig,
        model: LanguageModel,
        prompts: PromptBuilder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread. `inference.engine.loader` builds the parts from a model folder."""
        self._config = config
        self._model = model
        self._prompts = prompts
        self._clock = clock
        self._scheduler: Scheduler[Job] = Scheduler(config.max_sequences, config.cache_tokens)
        self._inbox: queue.SimpleQueue[tuple[CompletionRequest, ChunkSink, float] | None] = queue.SimpleQueue()
        self._is_closed = threading.Event()
        self._submit_lock = threading.Lock()  # nothing comes into the inbox once the engine is closed
        self._thread = threading.Thread(target=self._run, name="midtoken-engine", daemon=True)
        self._thread.start()

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        """Takes the request on; its chunks go to `sink`. Raises OverloadedError."""
        with self._submit_lock:
            if self._is_closed.is_set():
                raise OverloadedError("the engine is shutting down")
            if self._inbox.qsize() + len(self._scheduler) >= self._config.max_waiting + self._config.max_sequences:
                raise OverloadedError(f"{self._config.max_waiting} requests wait already; try again in a moment")
            self._inbox.put((request, sink, self._clock()))

    def close(self) -> None:
        """Ends what is in flight and the thread."""
        with self._submit_lock:
            self._is_closed.set()
            self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.is_set():
            self._take_inbox()
            self._drop_cancelled()
            for job in self._scheduler.admit():
                job.counters.started_at = self._clock()
                job.caches = [self._model.new_cache()]
            if not self._scheduler.running:
                continue
            try:
                self._step(self._scheduler.running)
            except Exception as error:  # the engine outlives whatever one step runs into
                _log.exception("a step failed")
                self._fail_running(error)
        for job in list(self._scheduler):
            _fail(job.sink, ServerError("the server is shutting down"))
        while not self._inbox.empty():
            if (arrival := self._inbox.get()) is not None:
                _fail(arrival[1], ServerError("the server is shutting down"))

    def _take_inbox(self) -> None:
        """Makes jobs of what has come in; waits for something where there is nothing else to do."""
        while True:
            try:
                arrival = self._inbox.get(block=len(self._scheduler) == 0)
            except queue.Empty:
                return
            if arrival is None:
                return
            request, sink, submitted_at = arrival
            try:
                self._scheduler.add(self._build_job(request, sink, submitted_at))
            except MidtokenError as error:
                _fail(sink, error)
            except Exception as error:
                _log.exception("a request could not be prepared")
                _fail(sink, ServerError(f"the request could not be prepared: {type(error).__name__}"))

    def _drop_cancelled(self) -> None:
        now = self._clock()
        for job in list(self._scheduler):
            deadline_ms = job.request.deadline_ms
            if _is_cancelled(job.sink):
                job.finish(FinishReason.CANCELLED)
            elif deadline_ms is not None and 1e3 * (now - job.counters.submitted_at) >= deadline_ms:
                job.finish(FinishReason.DEADLINE)
            else:
                continue
            _send_ready(job, now)
            self._scheduler.remove(job)

    def _build_job(self, request: CompletionRequest, sink: ChunkSink, submitted_at: float) -> Job:
        room = self._model.max_tokens - request.max_tokens - 1
        if room < _MIN_CONTEXT_TOKENS:
            raise InvalidRequestError(
                f"max_tokens is {request.max_tokens}, but the model sees {self._model.max_tokens} tokens in all"
            )
        prompt = self._prompts.build(request, min(room, self._config.max_context_tokens))
        limits = Limits(
            request.max_tokens, request.stop, build_extent_rule(request.extent, request.prefix, request.suffix)
        )
        tree = prompt.covering.build_tree(prompt.context_ids)
        first = Candidate(0, tree, prompt.covering.crossings, limits, Detokenizer(len(prompt.healed)))
        num_held = len(prompt.context_ids) + len(tree.branch_ids) + len(prompt.healed) + request.max_tokens
        counters = Counters(
            submitted_at, num_context_tokens=len(prompt.context_ids), num_tree_nodes=1 + len(tree.branch_ids)
        )
        return Job(
            request,
            sink,
            prompt,
            counters,
            request.num_candidates * num_held,
            [first],
            self._build_random_sources(request),
        )

    def _build_random_sources(self, request: CompletionRequest) -> tuple[RandomSource | None, ...]:
        if request.temperature == 0.0:
            return (None,) * request.num_candidates
        seed = request.seed
        return tuple(
            self._model.new_random_source(None if seed is None else (seed + index) % 2**63)
            for index in range(request.num_candidates)
        )

    def _step(self, jobs: tuple[Job, ...]) -> None:
        """Forwards what every job asks next, chooses, and sends."""
        turns = [
            _Turn(job, candidate, _next_step(job, candidate, cache))
            for job in jobs
            for candidate, cache in zip(job.candidates, job.caches, strict=True)
            if not candidate.finish_reason
        ]
        for job in jobs:
            job.counters.num_forwards += 1
        for turn, result in zip(turns, self._model.step([turn.step for turn in turns]), strict=True):
            if result is not None:
                self._accept(turn, result)
                continue
            turn.step.cache.keep(turn.step.tree, None)
            turn.job.num_read += len(turn.step.tree.chain_ids)
            turn.job.counters.num_reading_forwards += 1
        now = self._clock()
        for job in jobs:
            _send_ready(job, now)
            if job.is_finished:
                self._scheduler.remove(job)

    def _accept(self, turn: _Turn, result: SampleResult) -> None:
        job, candidate, step = turn.job, turn.candidate, turn.step
        job.counters.num_hot_hits += result.num_hot_hits
        job.counters.num_hot_misses += result.num_hot_misses
        if job.prompt.healed and (not candidate.token_ids or candidate.crossings[0].remaining_bytes):
            job.counters.num_healing_forwards = job.counters.num_forwards - job.counters.num_reading_forwards
        if job.request.explain and job.explanation is None:
            job.explanation = build_explanation(self._prompts, job.prompt, step.tree, candidate.crossings, result)
        if len(result.choices) > 1:  # the first choice of several candidates: each goes its own way from here
            self._branch(job, candidate, step, result.choices)
            return
        [choice] = result.choices
        step.cache.keep(step.tree, choice.crossing.node)
        self._take_choice(candidate, step.tree, choice)

    def _branch(self, job: Job, first: Candidate, step: Step, choices: tuple[Choice, ...]) -> None:
        caches = [step.cache, *(step.cache.fork() for _ in choices[1:])]
        job.candidates = []
        for index, (choice, cache) in enumerate(zip(choices, caches, strict=True)):
            candidate = Candidate(index, first.tree, first.crossings, first.limits, Detokenizer(len(job.prompt.healed)))
            cache.keep(step.tree, choice.crossing.node)
            self._take_choice(candidate, step.tree, choice)
            job.candidates.append(candidate)
        job.caches = caches

    def _take_choice(self, candidate: Candidate, tree: TokenTree, choice: Choice) -> None:
        token_bytes = self._prompts.vocabulary.token_bytes
        path = tuple(tree.branch_ids[branch] for branch in tree.find_path(choice.crossing.node))
        candidate.accept_path(path, b"".join(token_bytes[token_id] for token_id in path))
        if choice.token_id in self._prompts.vocabulary.special_ids:
            candidate.finish(FinishReason.END)
        else:
            candidate.accept_token(choice.crossing, choice.token_id, token_bytes[choice.token_id])

    def _fail_running(self, error: Exception) -> None:
        for job in self._scheduler.running:
            self._scheduler.remove(job)
            _fail(job.sink, error if isinstance(error, MidtokenError) else ServerError(f"a step failed: {error}"))


# A sink is somebody else's code: whatever it raises ends its own request and no other.
def _is_cancelled(sink: ChunkSink) -> bool:
    try:
        return sink.is_cancelled()
    except Exception:
        _log.exception("a sink does not say whether it was cancelled")
        return True


def _send_ready(job: Job, now: float) -> None:
    try:
        job.send_ready(now)
    except Exception:
        _log.exception("a sink does not take its chunk")
        job.finish(FinishReason.CANCELLED)


def _fail(sink: ChunkSink, error: MidtokenError) -> None:
    try:
        sink.fail(error)
    except Exception:
        _log.exception("a sink does not take its failure")


def _next_step(job: Job, candidate: Candidate, cache: SequenceCache) -> Step:
    """The sequence's tree; while a long context is still being read, a piece of its chain."""
    sample = _build_sample_request(job, candidate)
    if candidate.token_ids:
        return Step(cache, candidate.tree, sample)
    unread = candidate.tree.chain_ids[job.num_read :]
    if len(unread) > _PREFILL_TOKENS:
        return Step(cache, TokenTree(unread[:_PREFILL_TOKENS]))
    return Step(cache, dataclasses.replace(candidate.tree, chain_ids=unread), sample)


def _build_sample_request(job: Job, candidate: Candidate) -> SampleRequest:
    """The first choice of a request is made for all its candidates at once."""
    is_first = not candidate.token_ids
    random_sources = job.random_sources if is_first else (job.random_sources[candidate.index],)
    return SampleRequest(candidate.tree, candidate.crossings, job.sampling, random_sources)
