"""The completions of one document: the newest request wins, and text that was generated is used again."""

import asyncio
import dataclasses
import enum
from contextlib import aclosing
from dataclasses import dataclass

from inference.errors import ServerUnreachableError
from inference.protocol.completion import CompletionChunk, CompletionRequest
from lsp_server.backend import BackendStarter, CompletionBackend
from lsp_server.errors import to_midtoken_error
from lsp_server.items import CLOSERS
from lsp_server.status import Status


class Session:
    """Answers one document's requests, one at a time.

    At most one request waits and at most one generation runs. A request is answered

    1. from the current generation, if the text typed since its request agrees with what it has produced
       (*typed ahead*);
    2. from the same generation a little later, if the two agree as far as it has come;
    3. else from a new generation; the current one is cancelled, on the server too.

    The first line is answered as soon as it is complete, and the generation goes on. The request after acceptance,
    or after the next letter, gets the other lines from it (*chained*).

    A generation may end at any point: it fails, it is cancelled, or its connection is lost. The request that waits
    for it is then answered with None, and the next request starts a new one.
    """

    def __init__(self, starter: BackendStarter, status: Status) -> None:
        self._starter = starter
        self._status = status
        self._generation: _Generation | None = None
        self._waiting: _Waiting | None = None
        self._num_requests = 0

    async def complete(self, request: CompletionRequest) -> str | None:
        """The text to suggest, which may be empty; or None where a newer request took this one's place, where there
        is no backend yet, and where the generation failed (the person has been told).

        Cancelling the call cancels the generation that it waits for.
        """
        self._answer_waiting(None)
        self._num_requests += 1
        number = self._num_requests
        while number == self._num_requests:
            if self._generation is None or self._generation.find_answer(request) is NoAnswer.MISMATCH:
                self._stop()
                backend = await self._starter.get()
                if backend is None or number != self._num_requests:
                    break
                self._start(request, backend)
            answer = await self._wait(request)
            if not isinstance(answer, NoAnswer):
                return answer
        return None

    def close(self) -> None:
        """Cancels the generation, and answers the request that waits with None."""
        self._num_requests += 1
        self._answer_waiting(None)
        self._stop()

    async def _wait(self, request: CompletionRequest) -> "str | NoAnswer | None":
        waiting = self._waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._try_to_answer()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if self._waiting is waiting:  # else the generation belongs to a newer request
                self._waiting = None
                self._stop()
            raise

    def _start(self, request: CompletionRequest, backend: CompletionBackend) -> None:
        generation = self._generation = _Generation(request)
        generation.task = asyncio.create_task(self._generate(generation, backend))
        # A callback and not a `finally`: a task that is cancelled before its first step runs none of its code.
        generation.task.add_done_callback(lambda _: self._discard_unfinished(generation))

    async def _generate(self, generation: "_Generation", backend: CompletionBackend) -> None:
        try:
            async with aclosing(backend.stream(generation.request)) as chunks:
                async for chunk in chunks:
                    generation.add(chunk)
                    self._try_to_answer()
            generation.is_finished = True
            self._try_to_answer()
            self._status.working()
        except Exception as error:  # nobody awaits this task's result, so every error is reported here
            self._report(error, generation, backend)

    def _report(self, error: Exception, generation: "_Generation", backend: CompletionBackend) -> None:
        # An error after the backend was dropped is a consequence of the loss that the person was told of.
        if generation is self._generation and self._starter.is_current(backend):
            self._status.failed(to_midtoken_error(error))
        if isinstance(error, ServerUnreachableError):
            self._starter.drop(backend)

    def _discard_unfinished(self, generation: "_Generation") -> None:
        if generation is self._generation and not generation.is_finished:
            self._generation = None
            self._answer_waiting(None)

    def _try_to_answer(self) -> None:
        if self._waiting is not None and self._generation is not None:
            answer = self._generation.find_answer(self._waiting.request)
            if answer is not NoAnswer.PENDING:
                self._answer_waiting(answer)

    def _answer_waiting(self, answer: "str | NoAnswer | None") -> None:
        if self._waiting is not None:
            self._waiting.resolve(answer)
            self._waiting = None

    def _stop(self) -> None:
        if self._generation is not None and self._generation.task is not None:
            self._generation.task.cancel()
        self._generation = None


class NoAnswer(enum.Enum):
    """Why a generation has no answer to a request."""

    PENDING = enum.auto()  # it agrees with the request, and more text is to come
    MISMATCH = enum.auto()  # it cannot answer this request


@dataclass(slots=True)
class _Waiting:
    """The request that waits, and the future for its answer."""

    request: CompletionRequest
    answer: "asyncio.Future[str | NoAnswer | None]"

    def resolve(self, answer: "str | NoAnswer | None") -> None:
        if not self.answer.done():  # the editor may have cancelled it in the meantime
            self.answer.set_result(answer)


@dataclass(slots=True)
class _Generation:
    """What a request has generated so far."""

    request: CompletionRequest
    text: str = ""
    is_finished: bool = False
    task: asyncio.Task[None] | None = None

    def add(self, chunk: CompletionChunk) -> None:
        if chunk.candidate == 0:
            self.text += chunk.text
            self.is_finished = self.is_finished or chunk.finish_reason is not None

    def find_answer(self, request: CompletionRequest) -> str | NoAnswer:
        """The text still to insert for `request`, which may be newer than the generation's own.

        While more text is to come, the answer is whole lines only.
        """
        if self._is_dead:
            return NoAnswer.MISMATCH
        prefix, suffix = self.request.prefix, self.request.suffix
        if not request.prefix.startswith(prefix) or not _differ_by_closers(request.suffix, suffix):
            return NoAnswer.MISMATCH
        if dataclasses.replace(request, prefix=prefix, suffix=suffix) != self.request:
            return NoAnswer.MISMATCH
        typed = request.prefix[len(prefix) :]
        if not self.text.startswith(typed):
            is_behind = not self.is_finished and self.text != "" and typed.startswith(self.text)
            return NoAnswer.PENDING if is_behind else NoAnswer.MISMATCH
        remaining = self.text[len(typed) :]
        if self.is_finished:
            all_accepted = typed != "" and not remaining.strip()  # so the model has to say what comes next
            return NoAnswer.MISMATCH if all_accepted else remaining
        whole_lines = remaining.rpartition("\n")[0]
        return whole_lines if whole_lines.strip() else NoAnswer.PENDING

    @property
    def _is_dead(self) -> bool:
        """True where the task ended before the text was complete. The session learns of it a moment later."""
        return not self.is_finished and self.task is not None and self.task.done()


def _differ_by_closers(suffix: str, other: str) -> bool:
    """True for equal texts, and where one of them has more closers in front: editors insert and overtype those."""
    shorter, longer = sorted((suffix, other), key=len)
    return longer.endswith(shorter) and all(char in CLOSERS for char in longer.removesuffix(shorter))
