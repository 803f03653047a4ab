"""The engine: one thread that accepts requests, steps them together and sends their chunks."""

import logging
import queue
import threading
import time
from collections.abc import Callable

from inference.config import DEFAULT_CONTEXT_TOKENS, EngineConfig
from inference.engine.drafts import Drafter
from inference.engine.job_builder import JobBuilder
from inference.engine.prompt import PromptBuilder
from inference.engine.scheduler import ReadingSpeed, Scheduler
from inference.engine.sequence_memory import SequenceMemory
from inference.engine.sink import ChunkSink
from inference.engine.stepper import Stepper
from inference.engine.ticket import Ticket
from inference.errors import MidtokenError, OverloadedError, ServerError, describe_failure, to_public_error
from inference.model.language_model import LanguageModel
from inference.protocol.completion import CompletionRequest, FinishReason

_log = logging.getLogger(__name__)

_MAX_READ_TOKENS = 1024  # of new contexts, in one step of many requests
_WORK_PER_ROW = 1 / 64  # of a pass over many rows, in passes over one. It takes longer; but who moves must read


class Engine:
    """Completes text with one model."""

    def __init__(
        self,
        config: EngineConfig,
        model: LanguageModel,
        prompts: PromptBuilder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread. `inference.engine.assembly` builds the parts from a model folder."""
        self._config = config
        self._model = model
        self._clock = clock
        self._jobs = JobBuilder(config.max_context_tokens or DEFAULT_CONTEXT_TOKENS, model, prompts, clock)
        self._stepper = Stepper(model, prompts, clock, Drafter() if config.drafts else None)
        self._memory = SequenceMemory(model.new_cache, config.memory_mib * 2**20)
        self._scheduler: Scheduler[Ticket] = Scheduler(config.max_sequences, config.cache_tokens, clock)
        self._reading_speed = ReadingSpeed()
        self._heartbeat = Heartbeat(clock)
        self._inbox: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
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
            self._inbox.put(Ticket(request, sink, self._clock()))

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
        tickets = self._select()
        jobs = [ticket.job for ticket in tickets if ticket.job is not None]
        before = [job.counters.num_rows for job in jobs]
        started_at = self._clock()
        self._stepper.step(jobs)
        now = self._clock()
        num_rows = [job.counters.num_rows - count for job, count in zip(jobs, before, strict=True)]
        self._reading_speed.note(sum(num_rows), now - started_at)
        for ticket, count in zip(tickets, num_rows, strict=True):
            self._scheduler.charge(ticket, 1 + count * _WORK_PER_ROW)
            self._deliver(ticket, now)
        self._heartbeat.beat()

    def _take_inbox(self) -> None:
        """Adds the new requests; waits for one if there are none at all."""
        while True:
            is_idle = len(self._scheduler) == 0
            if is_idle:
                self._heartbeat.mark_idle()
            try:
                ticket = self._inbox.get(block=is_idle)
            except queue.Empty:
                return
            self._heartbeat.beat()
            if ticket is None:
                return
            superseded = self._scheduler.add(ticket)
            if superseded is not None:
                self._end(superseded, FinishReason.SUPERSEDED, self._clock())

    def _end_dead(self) -> None:
        """Ends the requests that were cancelled or are past their deadline."""
        now = self._clock()
        for ticket in self._scheduler:
            try:
                is_cancelled = ticket.sink.is_cancelled()
            except Exception as error:
                self._fail(ticket, error)
                continue
            if is_cancelled:
                self._end(ticket, FinishReason.CANCELLED, now)
            elif not ticket.has_until(now):
                self._end(ticket, FinishReason.DEADLINE, now)
            else:
                self._note_lateness(ticket, now)

    def _select(self) -> list[Ticket]:
        """The requests to step. Those whose turn it is are begun, if there is room for them."""
        selected: list[Ticket] = []
        num_read, is_full = 0, False
        for ticket in self._sort():
            if not ticket.is_begun:
                if is_full or not self._prepare(ticket):
                    continue
                if not self._scheduler.has_room(ticket):
                    is_full = True  # no other may begin before it
                    continue
                if not self._begin(ticket):
                    continue
            if selected and num_read >= _MAX_READ_TOKENS and ticket.num_unread:
                continue
            num_read += ticket.num_unread
            selected.append(ticket)
            if not self._model.runs_together:
                break
        return selected

    def _sort(self) -> list[Ticket]:
        """All requests in their order. Only a prompt tells how much there is to read, so the first one has its own."""
        while True:
            ordered = self._scheduler.sort()
            if not ordered or ordered[0].job is not None:
                return ordered
            self._prepare(ordered[0])

    def _prepare(self, ticket: Ticket) -> bool:
        """Builds the request's job. Returns whether it has one, and has not failed."""
        if ticket.job is not None:
            return True
        try:
            ticket.job = self._jobs.build(ticket)
            self._scheduler.check_size(ticket)
            ticket.num_remembered = self._memory.count_known(ticket.tenant, ticket.job.prompt.context_ids)
            self._note_lateness(ticket, self._clock())
        except Exception as error:
            self._fail(ticket, error)
            return False
        return True

    def _note_lateness(self, ticket: Ticket, now: float) -> None:
        ticket.will_be_late = not ticket.has_until(now + self._reading_speed.predict_s(ticket.num_unread))

    def _begin(self, ticket: Ticket) -> bool:
        """Gives the job a sequence, with what is remembered of its context. Returns whether that succeeded."""
        job = ticket.job
        assert job is not None, "it was prepared"
        ticket.is_begun = True
        job.counters.started_at = self._clock()
        try:
            sequence = self._memory.take(ticket.tenant, job.prompt.context_ids, job.max_cached_tokens)
            job.sequences = [sequence]
            [first] = job.candidates
            first.tree = first.tree.with_chain(sequence.begin(job.prompt.context_ids))
        except Exception as error:
            self._fail(ticket, error)
            return False
        return True

    def _end(self, ticket: Ticket, reason: FinishReason, now: float) -> None:
        """Ends a request before it is complete. What was generated is sent."""
        if ticket.job is None or not ticket.is_begun:
            try:
                ticket.end_unbegun(reason, now)
            except Exception as error:
                self._fail(ticket, error)
            else:
                self._remove(ticket)
            return
        with ticket.job.recording_failure():
            ticket.job.finish(reason)
        self._deliver(ticket, now)

    def _deliver(self, ticket: Ticket, now: float) -> None:
        """Sends the text that is ready. Removes the request if it has ended or failed."""
        job = ticket.job
        assert job is not None, "only begun requests have something to deliver"
        if job.failure is None:
            with job.recording_failure():
                job.send_ready(now)
        if job.failure is not None:
            self._fail(ticket, job.failure)
        elif job.is_finished:
            self._remove(ticket)

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        self._remove(ticket)
        _fail(ticket.sink, to_public_error(error, _log.error))

    def _remove(self, ticket: Ticket) -> None:
        """Removes a request. Its first sequence is remembered, as far as it was read."""
        self._scheduler.remove(ticket)
        if ticket.job is not None:
            if ticket.job.sequences:
                self._memory.give_back(ticket.job.sequences[0])
            ticket.job.sequences = []
            ticket.job.failure = None  # its traceback refers to the job, and so to the sequences

    def _fail_all(self, error: MidtokenError) -> None:
        """Refuses further requests and fails all present ones with `error`."""
        with self._submit_lock:
            self._has_stopped = True
        for ticket in self._scheduler:
            _fail(ticket.sink, error)
        while not self._inbox.empty():
            if (queued := self._inbox.get()) is not None:
                _fail(queued.sink, error)


def _fail(sink: ChunkSink, error: MidtokenError) -> None:
    try:
        sink.fail(error)
    except BaseException as raised:  # a sink that raises must not affect other requests
        _log.error("a sink raised in fail(): %s", describe_failure(raised))


_ENDED_MS = 1e12  # longer than any limit; not infinity, which JSON does not have


class Heartbeat:
    """Written by the engine's thread, read by any other.

    Progress is a finished round of the loop or a request taken from the queue, however long the queue is. A loop that
    hangs in a step or has ended makes no progress.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: returns seconds."""
        self._clock = clock
        self._last_beat = clock()
        self._is_idle = False
        self._has_ended = False

    def beat(self) -> None:
        """Records that the loop has made progress and is not idle."""
        self._last_beat = self._clock()
        self._is_idle = False  # set last: a thread that reads False must not read an old time

    def mark_idle(self) -> None:
        """Records that the loop waits for a request."""
        self._is_idle = True

    def end(self) -> None:
        """Records that the loop has ended for good."""
        self._has_ended = True

    def measure_ms(self) -> float:
        """Milliseconds since the last progress; 0 while idle; longer than any limit after the end."""
        if self._has_ended:
            return _ENDED_MS
        return 0.0 if self._is_idle else 1e3 * (self._clock() - self._last_beat)
