"""The requests of one document. A new request supersedes the older one, and generated text is reused."""

import asyncio
import dataclasses
import enum
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from inference.brackets import CLOSERS, QUOTES
from inference.errors import MidtokenError, ServerUnreachableError
from inference.likely_text import LikelyText
from inference.protocol.completion import CompletionChunk, CompletionRequest, FinishReason
from lsp_server.backend import BackendStarter, CompletionBackend
from lsp_server.documents import Document
from lsp_server.errors import to_midtoken_error
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, find_reason
from lsp_server.offers import Offers
from lsp_server.privacy.guard import Cleared
from lsp_server.settings import Settings
from lsp_server.status import Status
from lsp_server.usage import UsageFile

Change = Callable[[CompletionRequest], CompletionRequest]


@dataclass(frozen=True, slots=True)
class Question:
    """A request of the editor: the text around its cursor as it is, and the settings.

    The text that is sent may differ: text of other files may stand in it, and secrets are replaced.
    """

    prefix: str
    suffix: str
    settings: Settings
    confidence: float  # the least probability of the text that is shown
    # Returns what to send, or why nothing is sent: also if a newer request or an edit came meanwhile. Its argument
    # changes the request before it is cleared.
    build_request: Callable[[Change], Awaitable[Cleared[CompletionRequest] | NoSuggestion]] = field(compare=False)


_CUTS = (FinishReason.DEADLINE, FinishReason.CANCELLED, FinishReason.SUPERSEDED)


class NoAnswer(enum.Enum):
    """Why a generation has no answer to a question."""

    PENDING = enum.auto()  # the generation agrees with the question, and more text is to come
    MISMATCH = enum.auto()  # the generation cannot answer this question


@dataclass(slots=True, eq=False)
class Generation:
    """The text that the model generates for a question, as far as it has arrived."""

    question: Question
    task: asyncio.Task[None] | None = None
    likely: LikelyText = field(default_factory=LikelyText)
    num_shown: int = 0  # the first characters, which were shown, or typed; they stay
    is_finished: bool = False
    finish_reason: FinishReason | None = None  # None also where the stream ended without one
    failure: NoSuggestion | None = None  # why it ended early

    def add(self, chunk: CompletionChunk) -> None:
        """Adds a chunk of the first candidate."""
        if chunk.candidate == 0:
            self.likely.add(chunk)
            self.finish_reason = chunk.finish_reason or self.finish_reason
            self.is_finished = self.finish_reason is not None

    def find_answer(self, question: Question) -> str | NoAnswer:
        """Returns the text that is left to insert for a question, which may be newer than the generation's own.

        While more text is to come that may be shown, the answer consists of whole lines.
        """
        if self._is_dead or question.settings != self.question.settings:
            return NoAnswer.MISMATCH
        if self.finish_reason is FinishReason.UNLIKELY and question.confidence < self.question.confidence:
            return NoAnswer.MISMATCH
        prefix, suffix = self.question.prefix, self.question.suffix
        if not question.prefix.startswith(prefix) or not _differ_by_closers(question.suffix, suffix):
            return NoAnswer.MISMATCH
        if self.finish_reason is FinishReason.SUFFIX and len(question.suffix) < len(suffix):
            return NoAnswer.MISMATCH  # closers were deleted, which the text lacks
        typed = question.prefix[len(prefix) :]
        if not self.text.startswith(typed):
            is_behind = not self.is_finished and self.text != "" and typed.startswith(self.text)
            return NoAnswer.PENDING if is_behind else NoAnswer.MISMATCH
        likely_end = self.likely.find_end(len(typed), question.confidence)
        remaining = self.text[len(typed) : max(likely_end, self.num_shown)]
        if self.is_finished or likely_end < len(self.text):  # what is still to come is less likely
            all_accepted = typed != "" and not remaining.strip()  # the next text needs a new generation
            return NoAnswer.MISMATCH if all_accepted else remaining
        whole_lines = remaining.rpartition("\n")[0]
        return whole_lines if whole_lines.strip() else NoAnswer.PENDING

    def note_shown(self, question: Question, text: str) -> None:
        """To be called when a text of `find_answer` was sent."""
        self.num_shown = max(self.num_shown, len(question.prefix) - len(self.question.prefix) + len(text))

    @property
    def text(self) -> str:
        """What has arrived."""
        return self.likely.text

    @property
    def says_nothing(self) -> bool:
        """True if it ended before it had any text. It answers its own question, and no later one."""
        return self.finish_reason in _CUTS and not self.text.strip()

    @property
    def _is_dead(self) -> bool:
        """True if the task ended before the text was complete. The session's callback runs a moment later."""
        return not self.is_finished and self.task is not None and self.task.done()


def _differ_by_closers(suffix: str, other: str) -> bool:
    """True if the texts are equal except for closers at the start of one, which editors insert and overtype."""
    shorter, longer = sorted((suffix, other), key=len)
    return longer.endswith(shorter) and all(char in {*CLOSERS, *QUOTES} for char in longer.removesuffix(shorter))


_MAX_REMEMBERED = 16


class Session:
    """Answers one document's requests, one at a time.

    At most one request waits and at most one generation runs. A request is answered

    1. from a generation, if the text typed since that generation's request is the generated text (*typed ahead*).
       The current generation comes first, then the finished ones that are remembered: after a wrong letter is deleted,
       the text agrees with an older one again;
    2. from the current generation when it has more text, if the user has typed all that was generated so far;
    3. otherwise from a new generation. The current one is cancelled, on the server too.

    The answer is sent as soon as the first line is complete, and the generation continues. The request after
    acceptance, or after the next letter, gets the other lines from the same generation (*chained*).

    An edit makes the waiting request obsolete: its answer would be for a text that the editor no longer has. It is
    superseded at once, and the generation continues, because the edit may be text typed ahead.

    A generation may end at any point: it fails, it is cancelled, or its connection is lost. The request that waits
    for it then has no suggestion, and the next request starts a new generation.
    """

    def __init__(
        self, document: Document, starter: BackendStarter, status: Status, usage: UsageFile | None = None
    ) -> None:
        self.document = document
        self.offers = Offers(document, usage or UsageFile(None))
        self.checking: asyncio.Task[None] | None = None  # looks at the rules for the document
        self._starter = starter
        self._status = status
        self._generation: Generation | None = None
        self._remembered: deque[Generation] = deque(maxlen=_MAX_REMEMBERED)  # finished ones, the newest first
        self._waiting: _Waiting | None = None
        self._drawing: _Drawing | None = None
        self._was_known = False  # whether the last answer was, so that the editor may show it already
        self.num_requests = 0  # so far; an edit counts, too
        self.document_id = uuid.uuid4().hex  # names it to the server, where its path could be guessed from a hash

    async def complete(self, question: Question) -> str | NoSuggestion:
        """Returns the text to suggest, which may be empty, or why there is none.

        The user has been told of a failure. Cancelling the call cancels the generation that it waits for.
        """
        self.supersede()
        if self._drawing is not None and self._drawing.question != question:
            self._drawing.task.cancel()
        number, self._was_known = self.num_requests, True
        while number == self.num_requests:
            if not self._can_answer(question):
                self._stop()
                self._generation = self._recall(question)
            if self._generation is None:
                backend = await self._starter.get()
                if number != self.num_requests:
                    break
                if backend is None:
                    return self._starter.reason
                limit = partial(dataclasses.replace, min_probability=question.confidence)
                request = await question.build_request(limit)
                if isinstance(request, NoSuggestion):
                    return request
                self._was_known = False
                self._start(question, request, backend)
            answer = await self._wait(question)
            if number == self.num_requests and not isinstance(answer, NoAnswer):
                return answer
        return SUPERSEDED

    async def draw_alternatives(self, question: Question) -> list[str] | NoSuggestion:
        """Returns more texts for the question that was answered last, in no order; none if the server is busy.

        If that answer is new, it must not wait for them: those that take longer than a moment are there when the
        question is asked again, as editors do to show the next suggestion.
        """
        number = self.num_requests
        if self._drawing is None or self._drawing.question != question:
            backend, request = await self._starter.get(), await question.build_request(_draw)
            if number != self.num_requests:
                return SUPERSEDED
            if backend is None or isinstance(request, NoSuggestion):
                return []
            self._drawing = _Drawing(question, asyncio.create_task(_read_texts(backend, request)))
        task = self._drawing.task
        try:
            await asyncio.wait({task}, timeout=None if self._was_known else _MOMENT_S)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if number != self.num_requests or task.cancelled():
            return SUPERSEDED
        return task.result() if task.done() else []

    def supersede(self) -> None:
        """Ends the waiting request without a suggestion. The generation continues."""
        self.num_requests += 1
        self._answer_waiting(SUPERSEDED)

    def note_edit(self) -> None:
        """To be called for each edit. Supersedes the request, and draws no more texts for it."""
        self.supersede()
        if self._drawing is not None:
            self._drawing.task.cancel()
            self._drawing = None

    def close(self) -> None:
        """Cancels the generation, and ends the waiting request without a suggestion."""
        self.note_edit()
        self._stop()
        if self.checking is not None:
            self.checking.cancel()

    def _can_answer(self, question: Question) -> bool:
        generation = self._generation
        if generation is None or generation.says_nothing:
            return False
        return generation.find_answer(question) is not NoAnswer.MISMATCH

    def _recall(self, question: Question) -> Generation | None:
        return next((each for each in self._remembered if isinstance(each.find_answer(question), str)), None)

    async def _wait(self, question: Question) -> str | NoAnswer | NoSuggestion:
        waiting = self._waiting = _Waiting(question, asyncio.get_running_loop().create_future())
        self._try_to_answer()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if self._waiting is waiting:  # otherwise the generation belongs to a newer request
                self._waiting = None
                self._stop()
            raise

    def _start(self, question: Question, request: Cleared[CompletionRequest], backend: CompletionBackend) -> None:
        generation = self._generation = Generation(question)
        generation.task = asyncio.create_task(self._generate(generation, request, backend))
        # A callback, not a `finally`: a task that is cancelled before its first step runs none of its code.
        generation.task.add_done_callback(lambda _: self._discard_unfinished(generation))

    async def _generate(
        self, generation: Generation, request: Cleared[CompletionRequest], backend: CompletionBackend
    ) -> None:
        try:
            async with aclosing(backend.stream(request)) as chunks:
                async for chunk in chunks:
                    generation.add(chunk)
                    self._try_to_answer()
            generation.is_finished = True
            if not generation.says_nothing:
                self._remembered.appendleft(generation)
            self._try_to_answer()
            self._status.working()
        except Exception as error:  # nobody awaits this task's result, so every error is reported here
            self._report(error, generation, backend)

    def _report(self, error: Exception, generation: Generation, backend: CompletionBackend) -> None:
        failure = to_midtoken_error(error)
        generation.failure = NoSuggestion(find_reason(failure))  # is logged; the user is told what a server has said
        # Once the backend was dropped, the user has been told of the lost connection. Later errors follow from it.
        if generation is self._generation and self._starter.is_current(backend):
            self._status.failed(failure)
        if isinstance(error, ServerUnreachableError):
            self._starter.drop(backend)

    def _discard_unfinished(self, generation: Generation) -> None:
        if generation is self._generation and not generation.is_finished:
            self._generation = None
            self._answer_waiting(generation.failure or SUPERSEDED)

    def _try_to_answer(self) -> None:
        if self._waiting is not None and self._generation is not None:
            answer = self._generation.find_answer(self._waiting.question)
            if isinstance(answer, str):
                self._generation.note_shown(self._waiting.question, answer)
            if answer is not NoAnswer.PENDING:
                self._answer_waiting(answer)

    def _answer_waiting(self, answer: str | NoAnswer | NoSuggestion) -> None:
        if self._waiting is not None:
            if not self._waiting.answer.done():  # the editor may have cancelled it
                self._waiting.answer.set_result(answer)
            self._waiting = None

    def _stop(self) -> None:
        if self._generation is not None and self._generation.task is not None:
            self._generation.task.cancel()
        self._generation = None


@dataclass(slots=True)
class _Waiting:
    """The waiting request, and the future for its answer."""

    question: Question
    answer: "asyncio.Future[str | NoAnswer | NoSuggestion]"


@dataclass(frozen=True, slots=True)
class _Drawing:
    """More texts for a question, which are drawn at random."""

    question: Question
    task: asyncio.Task[list[str]]


_MOMENT_S = 0.1  # nobody notices
_NUM_DRAWN = 4  # of which some are equal
_TEMPERATURE = 0.8
_SEED = 7  # the same cursor has the same alternatives
_DEADLINE_MS = 1500


async def _read_texts(backend: CompletionBackend, request: Cleared[CompletionRequest]) -> list[str]:
    """Returns texts that are drawn at random by their probability; none if the server has no room for that."""
    texts = [""] * _NUM_DRAWN
    try:
        async with aclosing(backend.stream(request)) as chunks:
            async for chunk in chunks:
                texts[chunk.candidate] += chunk.text
    except MidtokenError:  # the best text is there, and a lost connection shows at the next request for it
        return []
    return texts


def _draw(request: CompletionRequest) -> CompletionRequest:
    """The texts are drawn beside the request for the best one, which they must not supersede."""
    return dataclasses.replace(
        request,
        num_candidates=_NUM_DRAWN,
        temperature=_TEMPERATURE,
        seed=_SEED,
        deadline_ms=min(request.deadline_ms or _DEADLINE_MS, _DEADLINE_MS),
        document="",
    )
