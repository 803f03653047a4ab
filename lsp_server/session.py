"""The completions of one document: the newest request wins, and what was generated is not asked for twice."""

import asyncio
import dataclasses
import enum
from dataclasses import dataclass

from inference.errors import MidtokenError, ServerError
from inference.protocol.completion import CompletionRequest
from lsp_server.backend import BackendStarter, CompletionBackend
from lsp_server.errors import UnexpectedError
from lsp_server.items import CLOSERS
from lsp_server.status import Status


class Session:
    """Answers one document's requests, one at a time.

    At most one request waits and at most one generation runs. A request is answered

    1. from the generation at hand, if the text typed since then agrees with what it said (*typed ahead*);
    2. from the same generation a little later, if that agrees as far as it has come;
    3. else from a new generation, for which the one at hand is cancelled, down to the server.

    The first line is answered as soon as it is complete and the generation goes on; the request that follows
    acceptance, or the next letter, finds the other lines here (*chained*).
    """

    def __init__(self, starter: BackendStarter, status: Status) -> None:
        self._starter = starter
        self._status = status
        self._generation: _Generation | None = None
        self._waiting: _Waiting | None = None
        self._num_requests = 0

    async def complete(self, request: CompletionRequest) -> str | None:
        """The text to suggest, which may be empty; or None where a newer request took this one's place,
        where there is no server yet, and where it failed, of which the person is told.

        Cancelling the call cancels the generation that it waits for.
        """
        self._supersede()
        self._num_requests += 1
        number = self._num_requests
        while number == self._num_requests:
            if self._generation is None or self._generation.find_answer(request) is _Not.AGREEING:
                self._stop()
                backend = await self._starter.get()
                if backend is None or number != self._num_requests:
                    break
                self._start(request, backend)
            answer = await self._wait(request)
            if not isinstance(answer, _Not):
                return answer
        return None

    def close(self) -> None:
        """Cancels what runs and answers what waits."""
        self._num_requests += 1
        self._supersede()
        self._stop()

    async def _wait(self, request: CompletionRequest) -> "str | _Not | None":
        waiting = self._waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._answer_waiting()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if self._waiting is waiting:  # else the generation is a newer request's
                self._waiting = None
                self._stop()
            raise

    def _start(self, request: CompletionRequest, backend: CompletionBackend) -> None:
        generation = self._generation = _Generation(request)
        generation.task = asyncio.create_task(self._generate(generation, backend))

    async def _generate(self, generation: "_Generation", backend: CompletionBackend) -> None:
        try:
            async for chunk in backend.stream(generation.request):
                if chunk.candidate == 0:
                    generation.text += chunk.text
                    generation.is_finished = chunk.finish_reason is not None
                    self._answer_waiting()
            generation.is_finished = True
            self._status.working()
            self._answer_waiting()
        except Exception as error:  # the rim of this task: whatever happens, who waits gets an answer
            if generation is self._generation:
                self._generation = None
                self._fail(error)
            if isinstance(error, ServerError):
                await self._starter.drop(backend)

    def _answer_waiting(self) -> None:
        if self._waiting is not None and self._generation is not None:
            answer = self._generation.find_answer(self._waiting.request)
            if answer is not _Not.YET:
                self._waiting.resolve(answer)
                self._waiting = None

    def _supersede(self) -> None:
        if self._waiting is not None:
            self._waiting.resolve(None)
            self._waiting = None

    def _fail(self, error: Exception) -> None:
        self._supersede()
        self._status.failed(error if isinstance(error, MidtokenError) else UnexpectedError(error))

    def _stop(self) -> None:
        if self._generation is not None and self._generation.task is not None:
            self._generation.task.cancel()
        self._generation = None


class _Not(enum.Enum):
    """Why a generation has no answer to a request."""

    YET = enum.auto()
    AGREEING = enum.auto()


@dataclass(slots=True)
class _Waiting:
    """The request that waits, and the place for its answer."""

    request: CompletionRequest
    answer: "asyncio.Future[str | _Not | None]"

    def resolve(self, answer: "str | _Not | None") -> None:
        if not self.answer.done():  # the editor may have cancelled it in the meantime
            self.answer.set_result(answer)


@dataclass(slots=True)
class _Generation:
    """What a request's answer has come to so far."""

    request: CompletionRequest
    text: str = ""
    is_finished: bool = False
    task: asyncio.Task[None] | None = None

    def find_answer(self, request: CompletionRequest) -> str | _Not:
        """What is left of the text for a request that may have come later: whole lines while more is to come."""
        start, end = self.request.prefix, self.request.suffix
        if not request.prefix.startswith(start) or not _differ_by_closers(request.suffix, end):
            return _Not.AGREEING
        if dataclasses.replace(request, prefix=start, suffix=end) != self.request:
            return _Not.AGREEING
        typed = request.prefix[len(start) :]
        if not self.text.startswith(typed):
            is_behind = not self.is_finished and self.text != "" and typed.startswith(self.text)
            return _Not.YET if is_behind else _Not.AGREEING
        rest = self.text[len(typed) :]
        if self.is_finished:
            return _Not.AGREEING if typed and not rest.strip() else rest  # all accepted: ask what comes next
        whole_lines = rest.rpartition("\n")[0]
        return whole_lines if whole_lines.strip() else _Not.YET


def _differ_by_closers(suffix: str, other: str) -> bool:
    """True for texts that are equal but for closers before one of them, which editors insert and overtype."""
    shorter, longer = sorted((suffix, other), key=len)
    return longer.endswith(shorter) and all(char in CLOSERS for char in longer.removesuffix(shorter))
