"""The engine: one thread that accepts requests, steps them together and sends their chunks."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from inference.config import DEFAULT_CONTEXT_TOKENS, EngineConfig
from inference.engine.job import ChunkBuffer, ChunkSink, Job
from inference.engine.prompt import Prompt, PromptBuilder
from inference.engine.scheduler import Scheduler
from inference.errors import (
    InvalidRequestError,
    MidtokenError,
    OverloadedError,
    ServerError,
    as_failure,
    describe_failure,
    tell_failure,
    to_public_error,
)
from inference.heartbeat import Heartbeat
from inference.protocol.completion import CompletionRequest, CompletionStats, FinishReason, Priority

_log = logging.getLogger(__name__)

_MAX_WAITING = 64  # requests, beside those that may run at once; so many are answered before people type on
_POLL_S = 0.01  # between checks of cancels and deadlines, while there is nothing to do
_LONG_PREFILL_S = 0.3  # a person sees that the text comes late
_NEAR_TOKENS = 256  # of a near context: what most lines need
_COMPLETION_FRACTION = 0.25  # of what the model sees: the prompt leaves this much room, if the completion may need it


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """What an engine must know of its executor."""

    cache_tokens: int  # capacity for keys and values, in tokens of all sequences together
    runs_together: bool  # whether a step of many jobs takes less time than one for each
    anticipates_typing: bool  # whether it can cache a second context of a prefetch beside the first
    runs_as: str  # for people: the dtype, the threads, and why


class Executor(Protocol):
    """Chooses the tokens of an engine's jobs. The engine's thread calls all methods that are not marked thread-safe."""

    info: ExecutorInfo

    @property
    def max_tokens(self) -> int:
        """The most tokens of one sequence."""

    @property
    def max_prefilled(self) -> int:
        """The most context tokens that one step of many jobs should prefill."""

    @property
    def problem(self) -> str:
        """Why no request would be answered now, as far as that is known; empty if one would. Thread-safe."""

    def estimate_prefill_s(self, num_tokens: int) -> float:
        """Returns how many seconds it takes to prefill as many tokens of a context, 0 if that is not known."""

    @property
    def memory_bytes(self) -> Mapping[str, int]:
        """The memory for prompts that are kept, by kind, and its limit; none if a server has it. Thread-safe."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything now. When this becomes true, the function of `start` is called."""

    def start(self, wake: Callable[[], None]) -> None:
        """Called once, first. `wake` is thread-safe."""

    def admit(self, job: Job) -> None:
        """Estimates how much a job has to prefill. Raises InvalidRequestError if its request cannot be executed."""

    def begin(self, job: Job) -> None:
        """Begins to work on a job. Raises OverloadedError."""

    def step(self, jobs: Sequence[Job], is_shared: bool) -> None:
        """Advances jobs that have begun, perhaps others than these, too, and adds to the costs of each.

        What goes wrong with one becomes its `failure`. `is_shared`: more than one person waits.
        """

    def end(self, job: Job) -> None:
        """Ends the work on a job, if it has begun. What it has prefilled stays cached."""

    def close(self) -> None:
        """Ends everything."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What an engine has to do, and the memory that it uses for that."""

    num_running: int
    num_waiting: int
    memory_bytes: Mapping[str, int]  # by kind


class Engine:
    """Completes text: schedules requests, runs them step by step, and streams the results."""

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        prompts: PromptBuilder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread. `inference.engine.local_executor` builds the parts from a model folder."""
        self.runs_as = executor.info.runs_as
        self.repository_format = prompts.related.format.name
        self._config = config
        self._executor = executor
        self._prompts = prompts
        self._clock = clock
        self._scheduler = Scheduler(config.max_sequences, executor.info.cache_tokens, clock)
        self.heartbeat = Heartbeat(clock)  # of the thread
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()  # None only wakes the thread
        self._submit_lock = threading.Lock()  # once the engine is closed or has stopped, nothing is queued
        self._num_counted = 0  # requests that have not ended
        self._is_closed = threading.Event()
        self._has_stopped = False
        executor.start(partial(self._inbox.put, None))
        self._thread = threading.Thread(target=self._run, name="midtoken-engine", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """Why no request would be answered now, as far as that is known; empty if one would. Thread-safe."""
        return self._executor.problem

    @property
    def context_tokens(self) -> int:
        """The most tokens of a prompt. Thread-safe."""
        return min(self._executor.max_tokens, self._config.max_context_tokens or DEFAULT_CONTEXT_TOKENS)

    @property
    def load(self) -> EngineLoad:
        """What there is to do now. Thread-safe."""
        num_running = sum(job.is_begun for job in self._scheduler)
        num_waiting = self._inbox.qsize() + len(self._scheduler) - num_running
        return EngineLoad(num_running, num_waiting, self._executor.memory_bytes)

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        """Queues the request; its chunks go to `sink`.

        Raises OverloadedError, or ServerError if the thread has stopped after an error.
        """
        with self._submit_lock:
            if self._is_closed.is_set():
                raise OverloadedError("the engine is shutting down", "shutdown")
            if self._has_stopped:
                raise ServerError("the engine has stopped after an error; its log says where. Restart the server")
            self._count(request.is_prefetch)
            self._inbox.put(Job(_as_prefetch(request) if request.is_prefetch else request, sink, self._clock()))

    def _count(self, is_prefetch: bool) -> None:
        """Counts a request, under the lock. Raises OverloadedError if there are as many as can run and wait.

        A prefetch never waits.
        """
        if self._num_counted >= self._config.max_sequences + (0 if is_prefetch else _MAX_WAITING):
            problem = "a prefetch does not wait" if is_prefetch else f"{_MAX_WAITING} requests wait already"
            raise OverloadedError(f"{problem}; try again in a moment", "prefetch" if is_prefetch else "queue")
        self._num_counted += 1

    def close(self) -> None:
        """Fails the unfinished requests and stops the thread."""
        with self._submit_lock:
            self._is_closed.set()
            self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        reason = "the server is shutting down"
        try:
            while not self._is_closed.is_set():
                self._run_once()
        except BaseException as error:  # however the thread ends, every waiting client gets an error
            _log.critical("the engine's thread has stopped with %s", describe_failure(error))
            reason = f"the engine has stopped after an error ({type(error).__name__}); its log says where"
        finally:
            self.heartbeat.end()
            self._fail_all(ServerError(reason))
            self._executor.close()

    def _run_once(self) -> None:
        self._read_inbox()
        self._end_cancelled_and_late()
        jobs = self._schedule()
        is_shared = sum(not job.request.is_prefetch for job in self._scheduler) > 1
        self._executor.step(jobs, is_shared)
        now = self._clock()
        others = [each for each in self._scheduler if each not in jobs]  # with --engine, they go on, too
        for job in jobs:
            job.num_steps += max(len(job.candidates), 1)
            self._deliver(job, now)
        for job in others:
            if job.is_finished or job.failure is not None:
                self._deliver(job, now)
        self.heartbeat.beat()

    def _read_inbox(self) -> None:
        """Adds the new requests; waits for one if there is nothing to do."""
        wait_s: float | None = 0.0 if self._executor.has_work else _POLL_S
        if not len(self._scheduler):
            self.heartbeat.mark_idle()
            wait_s = None
        with suppress(queue.Empty):
            while True:  # whatever has woken the thread, one round is for all that is there
                job, wait_s = self._inbox.get(wait_s != 0.0, wait_s), 0.0
                if job is not None:
                    self.heartbeat.beat()
                    for superseded in self._scheduler.add(job):
                        self._end(superseded, FinishReason.SUPERSEDED, self._clock())

    def _end_cancelled_and_late(self) -> None:
        """Ends the requests that were cancelled or are past their deadline."""
        now = self._clock()
        for job in self._scheduler:
            if job.sink.is_cancelled():
                self._end(job, FinishReason.CANCELLED, now)
            elif job.is_late(now):
                self._end(job, FinishReason.DEADLINE, now)

    def _schedule(self) -> list[Job]:
        """Returns the requests to step. Those whose turn it is are begun, if there is room for them."""
        # Only a prompt tells how much there is to prefill. A request whose prompt cannot be built is removed.
        while (ordered := self._scheduler.sort()) and not ordered[0].is_prepared:
            self._prepare(ordered[0])
        selected: list[Job] = []
        num_prefilled, is_full = 0, False
        max_prefilled = self._executor.max_prefilled
        for job in ordered:
            if job.is_finished:  # a prefetch that made room for one before it
                continue
            if selected and job.request.is_prefetch and not selected[0].request.is_prefetch:
                # The step of a person would be longer. With --engine, a step only passes on what the server has sent,
                # but the server would work on both. So where many people share it, hardly any prefetch begins.
                break
            if not job.is_begun:
                if is_full or not self._prepare(job):
                    continue
                if not self._make_room(job):
                    is_full = True  # no other may begin before it
                    continue
                if not self._try(job, partial(self._begin, job)):
                    continue
            if selected and num_prefilled >= max_prefilled and job.num_to_prefill:
                continue
            num_prefilled += job.num_to_prefill
            selected.append(job)
            if not self._executor.info.runs_together:
                break
        return selected

    def _prepare(self, job: Job) -> bool:
        """Builds the request's prompt, if it has none. Returns whether that succeeded."""
        return job.is_prepared or self._try(job, partial(self._build_prompt, job))

    def _build_prompt(self, job: Job) -> None:
        started_at = self._clock()
        window = self._executor.max_tokens
        num_later = min(job.request.max_tokens, max(int(window * _COMPLETION_FRACTION), 1))
        room = min(window - num_later, self.context_tokens)

        def take(prompt: Prompt) -> int:
            job.prepare(prompt, window, 1e3 * (self._clock() - started_at))
            self._scheduler.check_size(job)
            self._executor.admit(job)
            return job.num_to_prefill

        whole = self._prompts.build(job.request, room, job.anticipates_typing)
        num_whole = take(whole)
        if job.request.near_first and self._executor.estimate_prefill_s(num_whole) > _LONG_PREFILL_S:
            with suppress(InvalidRequestError):  # a long word has no room in a short context
                near = self._prompts.build(replace(job.request, related=()), min(_NEAR_TOKENS, room))
                job.is_near = 2 * take(near) <= num_whole
            if not job.is_near:
                take(whole)

    def _make_room(self, job: Job) -> bool:
        """Whether the job can begin. A person gets the room of prefetches, which end."""
        for other in self._scheduler:
            if self._scheduler.has_room(job) or job.request.is_prefetch:
                break
            if other.request.is_prefetch and other.is_begun:
                self._end(other, FinishReason.CANCELLED, self._clock())
        return self._scheduler.has_room(job)

    def _begin(self, job: Job) -> None:
        job.note_begin(self._clock())
        self._executor.begin(job)

    def _end(self, job: Job, reason: FinishReason, now: float) -> None:
        """Ends a request before it is complete. What was generated is sent."""
        job.finish(reason)
        if self._try(job, partial(job.send_ready, now)):
            self._remove(job)

    def _deliver(self, job: Job, now: float) -> None:
        """Sends the text that is ready. Removes the request if it has ended or failed."""
        if job.failure is not None:
            self._fail(job, job.failure)
        elif self._try(job, partial(job.send_ready, now)) and job.is_finished:
            self._remove(job)
            self._follow_up(job, now)

    def _follow_up(self, job: Job, now: float) -> None:
        """Prefills what the next key may need; others come first.

        After the near context, that is the whole one; after the prefetch of that, the window as it will be when
        somewhat more is typed.
        """
        is_now = job.request.is_prefetch and not job.anticipates_typing  # of the window as it is
        if job.is_near or (is_now and self._executor.info.anticipates_typing):
            with suppress(OverloadedError), self._submit_lock:
                self._count(is_prefetch=True)
                whole = replace(_as_prefetch(job.request), near_first=False)
                self._scheduler.add(Job(whole, ChunkBuffer(), now, anticipates_typing=not job.is_near))

    def _try(self, job: Job, act: Callable[[], object]) -> bool:
        """Returns whether it succeeded. If not, the job has failed, and no other one."""
        try:
            act()
        except BaseException as error:
            self._fail(job, as_failure(error))
            return False
        return True

    def _fail(self, job: Job, error: BaseException) -> None:
        self._remove(job)
        public = to_public_error(error, _log.error)
        # Without its traceback, which refers to sequences.
        tell_failure(job.sink.fail, public.with_traceback(None), _log.error)

    def _remove(self, job: Job) -> None:
        self._scheduler.remove(job)
        with self._submit_lock:
            self._num_counted -= 1
        self._executor.end(job)
        job.failure = None  # its traceback refers to sequences

    def _fail_all(self, error: MidtokenError) -> None:
        """Refuses further requests and fails all present ones with `error`."""
        with self._submit_lock:
            self._has_stopped = True
        for job in self._scheduler:
            tell_failure(job.sink.fail, error, _log.error)
        while not self._inbox.empty():
            if (queued := self._inbox.get()) is not None:
                tell_failure(queued.sink.fail, error, _log.error)


def _as_prefetch(request: CompletionRequest) -> CompletionRequest:
    """The prefetch of what one text of the request needs."""
    return replace(request, priority=Priority.PREFETCH, num_candidates=1, temperature=0.0, explain=False)


def complete(engine: Engine, request: CompletionRequest) -> tuple[str, CompletionStats]:
    """The first candidate's text and the statistics. Raises the error of a failed request."""
    sink = ChunkBuffer()
    engine.submit(request, sink)
    return sink.wait()
