"""The requests of one document. A new request supersedes the older one, and generated text is reused."""

import asyncio
import dataclasses
import enum
from contextlib import aclosing
from dataclasses import dataclass

from inference.errors import ServerUnreachableError
from inference.protocol.completion import CompletionChunk, CompletionRequest, FinishReason
from lsp_server.backend import BackendStarter, CompletionBackend
from lsp_server.errors import to_midtoken_error
from lsp_server.items import CLOSERS
from lsp_server.status import Status


class Session:
    """Answers one document's requests, one at a time.

    At most one request waits and at most one generation runs. A request is answered

    1. from the current generation, if the text typed since that generation's request is the generated text
       (*typed ahead*);
    2. from the same generation when it has more text, if the user has typed all that was generated so far;
    3. otherwise from a new generation. The current one is cancelled, on the server too.

    The answer is sent as soon as the first line is complete, and the generation continues. The request after
    acceptance, or after the next letter, gets the other lines from the same generation (*chained*).

    An edit makes the waiting request obsolete: its answer would be for a text that the editor no longer has. It is
    answered with None at once, and the generation continues, because the edit may be text typed ahead.

    A generation may end at any point: it fails, it is cancelled, or its connection is lost. The request that waits
    for it is then answered with None, and the next request starts a new generation.
    """

    def __init__(self, starter: BackendStarter, status: Status) -> None:
        self._starter = starter
        self._status = status
        self._generation: _Generation | None = None
        self._waiting: _Waiting | None = None
        self._num_requests = 0

    async def complete(self, request: CompletionRequest) -> str | None:
        """Returns the text to suggest, which may be empty.

        Returns None if a newer request or an edit superseded this one, there is no backend yet, or the generation
        failed. The user has been told of a failure. Cancelling the call cancels the generation that it waits for.
        """
        self.supersede()
        number = self._num_requests
        while number == self._num_requests:
            if self._generation is None or self._generation.find_answer(request) is NoAnswer.MISMATCH:
                self._stop()
                backend = await self._starter.get()
                if backend is None or number != self._num_requests:
                    break
                self._start(request, backend)
            answer = await self._wait(request)
            if number == self._num_requests and not isinstance(answer, NoAnswer):
                return answer
        return None

    def supersede(self) -> None:
        """Answers the waiting request with None. The generation continues. To be called for each edit."""
        self._num_requests += 1
        self._answer_waiting(None)

    def close(self) -> None:
        """Cancels the generation, and answers the waiting request with None."""
        self.supersede()
        self._stop()

    async def _wait(self, request: CompletionRequest) -> "str | NoAnswer | None":
        waiting = self._waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._try_to_answer()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if self._waiting is waiting:  # otherwise the generation belongs to a newer request
                self._waiting = None
                self._stop()
            raise

    def _start(self, request: CompletionRequest, backend: CompletionBackend) -> None:
        generation = self._generation = _Generation(request)
        generation.task = asyncio.create_task(self._generate(generation, backend))
        # A callback, not a `finally`: a task that is cancelled before its first step runs none of its code.
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
        # Once the backend was dropped, the user has been told of the lost connection. Later errors follow from it.
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

    PENDING = enum.auto()  # the generation agrees with the request, and more text is to come
    MISMATCH = enum.auto()  # the generation cannot answer this request


@dataclass(slots=True)
class _Waiting:
    """The waiting request, and the future for its answer."""

    request: CompletionRequest
    answer: "asyncio.Future[str | NoAnswer | None]"

    def resolve(self, answer: "str | NoAnswer | None") -> None:
        if not self.answer.done():  # the editor may have cancelled it
            self.answer.set_result(answer)


@dataclass(slots=True)
class _Generation:
    """A request, and the text generated for it so far."""

    request: CompletionRequest
    text: str = ""
    is_finished: bool = False
    reached_suffix: bool = False  # what the suffix of its request begins with is not part of the text
    task: asyncio.Task[None] | None = None

    def add(self, chunk: CompletionChunk) -> None:
        if chunk.candidate == 0:
            self.text += chunk.text
            self.is_finished = self.is_finished or chunk.finish_reason is not None
            self.reached_suffix = self.reached_suffix or chunk.finish_reason is FinishReason.SUFFIX

    def find_answer(self, request: CompletionRequest) -> str | NoAnswer:
        """Returns the text that is left to insert for `request`, which may be newer than the generation's own.

        While more text is to come, the answer consists of whole lines.
        """
        if self._is_dead:
            return NoAnswer.MISMATCH
        prefix, suffix = self.request.prefix, self.request.suffix
        if not request.prefix.startswith(prefix) or not _differ_by_closers(request.suffix, suffix):
            return NoAnswer.MISMATCH
        if self.reached_suffix and len(request.suffix) < len(suffix):  # closers were deleted, so the text lacks them
            return NoAnswer.MISMATCH
        if dataclasses.replace(request, prefix=prefix, suffix=suffix) != self.request:
            return NoAnswer.MISMATCH
        typed = request.prefix[len(prefix) :]
        if not self.text.startswith(typed):
            is_behind = not self.is_finished and self.text != "" and typed.startswith(self.text)
            return NoAnswer.PENDING if is_behind else NoAnswer.MISMATCH
        remaining = self.text[len(typed) :]
        if self.is_finished:
            all_accepted = typed != "" and not remaining.strip()  # the next text needs a new generation
            return NoAnswer.MISMATCH if all_accepted else remaining
        whole_lines = remaining.rpartition("\n")[0]
        return whole_lines if whole_lines.strip() else NoAnswer.PENDING

    @property
    def _is_dead(self) -> bool:
        """True if the task ended before the text was complete. The session's callback runs a moment later."""
        return not self.is_finished and self.task is not None and self.task.done()


def _differ_by_closers(suffix: str, other: str) -> bool:
    """True if the texts are equal except for closers at the start of one, which editors insert and overtype."""
    shorter, longer = sorted((suffix, other), key=len)
    return longer.endswith(shorter) and all(char in CLOSERS for char in longer.removesuffix(shorter))
