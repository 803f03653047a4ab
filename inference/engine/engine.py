"""The engine: one thread that accepts requests, steps them together and sends their chunks."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from functools import partial

from inference.config import DEFAULT_CONTEXT_TOKENS, EngineConfig
from inference.engine.drafts import Drafter
from inference.engine.job import EngineParts, Job
from inference.engine.prompt import PromptBuilder
from inference.engine.scheduler import PrefillSpeed, Scheduler
from inference.engine.sequence_memory import SequenceMemory
from inference.engine.sink import ChunkSink, WaitingSink
from inference.engine.stepper import Stepper
from inference.errors import (
    MidtokenError,
    OverloadedError,
    ServerError,
    as_failure,
    describe_failure,
    tell_failure,
    to_public_error,
)
from inference.model.language_model import LanguageModel
from inference.protocol.completion import CompletionRequest, FinishReason
from inference.protocol.heartbeat import Heartbeat

_log = logging.getLogger(__name__)

_MAX_PREFILLS = 2  # full pieces of contexts, in one step of many requests
_WORK_PER_ROW = 1 / 64  # in passes. It costs more, but nobody is to lose their turn by one jump in a file


class Engine:
    """Completes text with one model."""

    problem = ""  # it has the model

    def __init__(
        self,
        config: EngineConfig,
        model: LanguageModel,
        prompts: PromptBuilder,
        clock: Callable[[], float] = time.monotonic,
        runs_as: str = "",
    ) -> None:
        """Starts the thread. `inference.engine.assembly` builds the parts from a model folder."""
        self.runs_as = runs_as
        max_context_tokens = config.max_context_tokens or DEFAULT_CONTEXT_TOKENS
        drafter = Drafter(model.row_cost) if config.drafts else None
        self._config = config
        self._runs_together = model.runs_together
        self._clock = clock
        self._parts = EngineParts(
            model, prompts, max_context_tokens, clock, drafter, PrefillSpeed(), self._find_row_bytes, self._is_shared
        )
        self._stepper = Stepper(self._parts)
        self._memory = SequenceMemory(model.new_cache, config.memory_mib * 2**20)
        self._scheduler: Scheduler[Job] = Scheduler(config.max_sequences, config.cache_tokens, clock)
        self._heartbeat = Heartbeat(clock)
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._submit_lock = threading.Lock()  # once the engine is closed or has stopped, nothing is queued
        self._is_closed = threading.Event()
        self._has_stopped = False
        self._thread = threading.Thread(target=self._run, name="midtoken-engine", daemon=True)
        self._thread.start()

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        """Queues the request; its chunks go to `sink`.

        Raises OverloadedError, or ServerError if the thread has stopped after an error.
        """
        with self._submit_lock:
            if self._is_closed.is_set():
                raise OverloadedError("the engine is shutting down")
            if self._has_stopped:
                raise ServerError("the engine has stopped after an error; its log says where. Restart the server")
            max_waiting = 0 if request.is_prefetch else self._config.max_waiting
            if self._inbox.qsize() + len(self._scheduler) >= max_waiting + self._config.max_sequences:
                raise OverloadedError(f"{max_waiting} requests wait already; try again in a moment")
            self._inbox.put(Job(request, sink, self._parts, submitted_at=self._clock()))

    def measure_heartbeat_ms(self) -> float:
        """Milliseconds since the loop last made progress; 0 while idle. Does not block; thread-safe.

        Once the thread has stopped, the value is longer than any limit.
        """
        return self._heartbeat.measure_ms()

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
            self._heartbeat.end()
            self._fail_all(ServerError(reason))

    def _run_once(self) -> None:
        self._take_inbox()
        self._end_dead()
        self._prepare_first()
        jobs = self._select()
        self._stepper.step(jobs)
        now = self._clock()
        for job in jobs:
            self._scheduler.charge(job, 1 + job.num_step_rows * _WORK_PER_ROW)
            self._deliver(job, now)
        self._memory.shrink()  # the logits of those that run have become more
        self._heartbeat.beat()

    def _take_inbox(self) -> None:
        """Adds the new requests; waits for one if there are none at all."""
        while True:
            is_idle = len(self._scheduler) == 0
            if is_idle:
                self._heartbeat.mark_idle()
            try:
                job = self._inbox.get(block=is_idle)
            except queue.Empty:
                return
            self._heartbeat.beat()
            if job is None:
                return
            for superseded in self._scheduler.add(job):
                self._end(superseded, FinishReason.SUPERSEDED, self._clock())

    def _end_dead(self) -> None:
        """Ends the requests that were cancelled or are past their deadline."""
        now = self._clock()
        for job in self._scheduler:
            if job.sink.is_cancelled():
                self._end(job, FinishReason.CANCELLED, now)
            elif job.is_late(now):
                self._end(job, FinishReason.DEADLINE, now)
            else:
                self._predict_lateness(job, now)

    def _prepare_first(self) -> None:
        """Sees to it that the first request in the order has a prompt: only this tells how much there is to prefill.

        One whose prompt cannot be built is removed, so this ends.
        """
        while (ordered := self._scheduler.sort()) and not ordered[0].is_prepared:
            self._prepare(ordered[0])

    def _select(self) -> list[Job]:
        """The requests to step. Those whose turn it is are begun, if there is room for them."""
        selected: list[Job] = []
        num_prefilled, is_full = 0, False
        max_prefilled = _MAX_PREFILLS * self._parts.speed.find_max_rows()
        ordered = self._scheduler.sort()
        for job in ordered:
            if job.request.is_prefetch and not ordered[0].request.is_prefetch:
                break  # no person's step is longer for it
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
            if not self._runs_together:
                break
        return selected

    def _prepare(self, job: Job) -> bool:
        """Builds the request's prompt, if it has none. Returns whether that succeeded."""
        return job.is_prepared or self._try(job, partial(self._build_prompt, job))

    def _build_prompt(self, job: Job) -> None:
        job.prepare()
        self._scheduler.check_size(job)
        job.num_remembered = self._memory.count_known(job.request.tenant, job.prompt.context_ids)
        self._predict_lateness(job, self._clock())

    def _make_room(self, job: Job) -> bool:
        """Whether the job can begin. A person gets the room of prefetches, which end."""
        for other in self._scheduler:
            if self._scheduler.has_room(job) or job.request.is_prefetch:
                break
            if other.request.is_prefetch and other.is_begun:
                self._end(other, FinishReason.CANCELLED, self._clock())
        return self._scheduler.has_room(job)

    def _find_row_bytes(self) -> int:
        """The memory for the logits of one running sequence."""
        return self._config.memory_mib * 2**20 // max(self._scheduler.num_sequences, 1)

    def _is_shared(self) -> bool:
        """Whether more than one person waits. A prefetch waits for them all."""
        return sum(not job.request.is_prefetch for job in self._scheduler) > 1

    def _predict_lateness(self, job: Job, now: float) -> None:
        job.will_be_late = job.is_late(now + self._parts.speed.predict_s(job.num_to_prefill))

    def _begin(self, job: Job) -> None:
        """Gives the job a sequence, with what is remembered of its context."""
        job.begin(self._memory.take(job.request.tenant, job.prompt.context_ids, job.max_cached_tokens))

    def _end(self, job: Job, reason: FinishReason, now: float) -> None:
        """Ends a request before it is complete. What was generated is sent."""
        if self._try(job, partial(job.end, reason, now)):
            self._remove(job)

    def _deliver(self, job: Job, now: float) -> None:
        """Sends the text that is ready. Removes the request if it has ended or failed."""
        if job.failure is not None:
            self._fail(job, job.failure)
        elif self._try(job, partial(job.send_ready, now)) and job.is_finished:
            self._remove(job)
            if job.request.is_prefetch and not job.is_ahead:
                self._scheduler.add(Job(job.request, WaitingSink(), self._parts, now, is_ahead=True))

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
        # Without its traceback, which refers to the candidates, and so to the sequences.
        tell_failure(job.sink.fail, public.with_traceback(None), _log.error)

    def _remove(self, job: Job) -> None:
        """Removes a request. Its first sequence is remembered, as far as it was forwarded."""
        self._scheduler.remove(job)
        if job.candidates:
            self._memory.give_back(job.candidates[0].sequence)
        job.candidates = []
        job.failure = None  # its traceback refers to the candidates, and so to the sequences

    def _fail_all(self, error: MidtokenError) -> None:
        """Refuses further requests and fails all present ones with `error`."""
        with self._submit_lock:
            self._has_stopped = True
        for job in self._scheduler:
            tell_failure(job.sink.fail, error, _log.error)
        while not self._inbox.empty():
            if (queued := self._inbox.get()) is not None:
                tell_failure(queued.sink.fail, error, _log.error)
