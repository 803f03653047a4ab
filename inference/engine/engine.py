"""The engine: one thread that accepts requests, steps them together and sends their chunks."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from inference.config import EngineConfig
from inference.engine.heartbeat import Heartbeat
from inference.engine.job import ChunkSink, Job
from inference.engine.job_builder import JobBuilder, QueuedRequest
from inference.engine.prompts.prompt import PromptBuilder
from inference.engine.scheduler import Scheduler
from inference.engine.stepper import Stepper
from inference.errors import MidtokenError, OverloadedError, ServerError, describe_failure, to_public_error
from inference.model.language_model import LanguageModel
from inference.protocol.completion import CompletionRequest, FinishReason

_log = logging.getLogger(__name__)


class Completer(Protocol):
    """An object that answers completion requests: `Engine`, or a fake in the tests."""

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        """Queues the request; its chunks go to `sink`. Raises OverloadedError or ServerError."""
        ...

    def measure_heartbeat_ms(self) -> float:
        """Milliseconds without progress; 0 while idle. Does not block; thread-safe."""
        ...

    def close(self) -> None:
        """Fails the unfinished requests and stops the thread."""
        ...


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
        self._clock = clock
        self._jobs = JobBuilder(config, model, prompts)
        self._stepper = Stepper(model, prompts)
        self._scheduler: Scheduler[Job] = Scheduler(config.max_sequences, config.cache_tokens)
        self._heartbeat = Heartbeat(clock)
        self._inbox: queue.SimpleQueue[QueuedRequest | None] = queue.SimpleQueue()
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
            if self._inbox.qsize() + len(self._scheduler) >= self._config.max_waiting + self._config.max_sequences:
                raise OverloadedError(f"{self._config.max_waiting} requests wait already; try again in a moment")
            self._inbox.put(QueuedRequest(request, sink, self._clock()))

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
        self._end_cancelled_or_expired()
        self._admit()
        self._stepper.step(self._scheduler.running)
        now = self._clock()
        for job in self._scheduler.running:
            self._deliver(job, now)
        self._heartbeat.beat()

    def _take_inbox(self) -> None:
        """Builds jobs from the queued requests; waits for a request if there are no jobs."""
        while True:
            is_idle = len(self._scheduler) == 0
            if is_idle:
                self._heartbeat.mark_idle()
            try:
                queued = self._inbox.get(block=is_idle)
            except queue.Empty:
                return
            self._heartbeat.beat()
            if queued is None:
                return
            try:
                self._scheduler.add(self._jobs.build(queued))
            except Exception as error:
                _fail(queued.sink, to_public_error(error, _log.error))

    def _end_cancelled_or_expired(self) -> None:
        """Ends the jobs that were cancelled or are past their deadline."""
        now = self._clock()
        for job in self._scheduler:
            deadline_ms = job.request.deadline_ms
            with job.recording_failure():
                if job.sink.is_cancelled():
                    job.finish(FinishReason.CANCELLED)
                elif deadline_ms is not None and 1e3 * (now - job.counters.submitted_at) >= deadline_ms:
                    job.finish(FinishReason.DEADLINE)
            if job.failure or job.is_finished:
                self._deliver(job, now)

    def _admit(self) -> None:
        for job in self._scheduler.admit():
            job.counters.started_at = self._clock()
            with job.recording_failure():
                job.caches = [self._model.new_cache(job.max_cached_tokens)]

    def _deliver(self, job: Job, now: float) -> None:
        """Sends the text that is ready. Removes the job if it has ended or failed."""
        if job.failure is None:
            with job.recording_failure():
                job.send_ready(now)
        if job.failure is None and not job.is_finished:
            return
        self._scheduler.remove(job)
        job.caches.clear()
        failure, job.failure = job.failure, None  # its traceback refers to the job, and so to the caches
        if failure is not None:
            _fail(job.sink, to_public_error(failure, _log.error))

    def _fail_all(self, error: MidtokenError) -> None:
        """Refuses further requests and fails all present ones with `error`."""
        with self._submit_lock:
            self._has_stopped = True
        for job in self._scheduler:
            _fail(job.sink, error)
        while not self._inbox.empty():
            if (queued := self._inbox.get()) is not None:
                _fail(queued.sink, error)


def _fail(sink: ChunkSink, error: MidtokenError) -> None:
    try:
        sink.fail(error)
    except BaseException as raised:  # a sink that raises must not affect other requests
        _log.error("a sink raised in fail(): %s", describe_failure(raised))
