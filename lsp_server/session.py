"""The requests of one document. A new request supersedes the older one, and generated text is reused."""

import asyncio
import enum
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from inference.brackets import CLOSERS, QUOTES
from inference.errors import MidtokenError, ServerUnreachableError
from inference.likely_text import LikelyText
from inference.protocol.completion import CompletionChunk, CompletionRequest, FinishReason
from lsp_server.backend import BackendStarter, CompletionBackend
from lsp_server.documents import Change, Document
from lsp_server.editor_request import EditorRequest
from lsp_server.errors import to_midtoken_error
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, find_reason, is_paste
from lsp_server.offers import Offers
from lsp_server.privacy.guard import Cleared
from lsp_server.request_builder import Purpose, RequestBuilder
from lsp_server.status import Status
from lsp_server.usage import UsageFile

_CUTS = (FinishReason.DEADLINE, FinishReason.CANCELLED, FinishReason.SUPERSEDED)


class NoText(enum.Enum):
    """Why a generation has no text for a request."""

    PENDING = enum.auto()  # the generation agrees with the request, and more text is to come
    MISMATCH = enum.auto()  # the generation does not continue the request's text


@dataclass(slots=True, eq=False)
class Generation:
    """The text that the model generates for a request, as far as it has arrived."""

    asked: EditorRequest
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

    def find_text(self, asked: EditorRequest) -> str | NoText:
        """Returns the text that is left to insert for a request, which may be newer than the generation's own.

        While more text is to come that may be shown, it consists of whole lines.
        """
        if self._is_dead or asked.settings != self.asked.settings:
            return NoText.MISMATCH
        if self.finish_reason is FinishReason.UNLIKELY and asked.confidence < self.asked.confidence:
            return NoText.MISMATCH
        prefix, suffix = self.asked.prefix, self.asked.suffix
        if not asked.prefix.startswith(prefix) or not _differ_by_closers(asked.suffix, suffix):
            return NoText.MISMATCH
        if self.finish_reason is FinishReason.SUFFIX and len(asked.suffix) < len(suffix):
            return NoText.MISMATCH  # closers were deleted, which the text lacks
        typed = asked.prefix[len(prefix) :]
        if not self.text.startswith(typed):
            is_behind = not self.is_finished and self.text != "" and typed.startswith(self.text)
            return NoText.PENDING if is_behind else NoText.MISMATCH
        likely_end = self.likely.find_end(len(typed), asked.confidence)
        remaining = self.text[len(typed) : max(likely_end, self.num_shown)]
        if self.is_finished or likely_end < len(self.text):  # what is still to come is less likely
            all_accepted = typed != "" and not remaining.strip()  # the next text needs a new generation
            return NoText.MISMATCH if all_accepted else remaining
        whole_lines = remaining.rpartition("\n")[0]
        return whole_lines if whole_lines.strip() else NoText.PENDING

    def note_shown(self, asked: EditorRequest, text: str) -> None:
        """To be called when a text of `find_text` was sent."""
        self.num_shown = max(self.num_shown, len(asked.prefix) - len(self.asked.prefix) + len(text))

    @property
    def text(self) -> str:
        """What has arrived."""
        return self.likely.text

    @property
    def says_nothing(self) -> bool:
        """True if it ended before it had any text. It answers its own request, and no later one."""
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
        self,
        document: Document,
        builder: RequestBuilder,
        starter: BackendStarter,
        status: Status,
        usage: UsageFile | None = None,
    ) -> None:
        self.document = document
        self.offers = Offers(document, usage or UsageFile(None))
        self._builder = builder
        self._starter = starter
        self._status = status
        self._generation: Generation | None = None
        self._remembered: deque[Generation] = deque(maxlen=_MAX_REMEMBERED)  # finished ones, the newest first
        self._waiting: _Waiting | None = None
        self._drawing: _Drawing | None = None
        self._was_known = False  # whether the last answer was, so that the editor may show it already
        self._num_requests = 0  # so far; an edit counts, too

    def edit(self, version: int, changes: Sequence[Change]) -> None:
        """Applies the edits of one notification. Supersedes the request. Raises EditorError."""
        self._note_edit()
        last_edit = self.document.last_edit
        self.document.apply(version, changes)
        if self.document.last_edit is not last_edit:  # an edit of an older version is ignored
            self.document.was_pasted = is_paste(self.document.last_edit, self.offers.lines)
        self.offers.follow(changes)

    def lose_text(self) -> None:
        """To be called for an edit that cannot be read. Supersedes the request. Raises OutOfStepError."""
        self._note_edit()
        self.document.lose_text("the editor sent an edit that cannot be read")

    async def complete(self, asked: EditorRequest) -> str | NoSuggestion:
        """Returns the text to suggest, which may be empty, or why there is none.

        The user has been told of a failure. Cancelling the call cancels the generation that it waits for.
        """
        number, self._was_known = self.supersede(), True
        if self._drawing is not None and self._drawing.asked != asked:
            self._drawing.task.cancel()
        while self.is_newest(number):
            if not self._can_answer(asked):
                self._stop()
                self._generation = self._recall(asked)
            if self._generation is None:
                refused = await self._start(asked, number)
                if refused is not None:
                    return refused
            text = await self._wait(asked)
            if self.is_newest(number) and not isinstance(text, NoText):
                return text
        return SUPERSEDED

    async def draw_alternatives(self, asked: EditorRequest) -> list[str] | NoSuggestion:
        """Returns more texts for the request that was answered last, in no order; none if the server is busy.

        If that answer is new, it must not wait for them: those that take longer than a moment are there when the
        request comes again, as editors send it to show the next suggestion.
        """
        number = self._num_requests
        if self._drawing is None or self._drawing.asked != asked:
            backend, request = await self._starter.get(), await self._builder.build(asked, Purpose.ALTERNATIVES)
            if not self.is_newest(number):
                return SUPERSEDED
            if backend is None or isinstance(request, NoSuggestion):
                return []
            self._drawing = _Drawing(asked, asyncio.create_task(_read_texts(backend, request)))
        task = self._drawing.task
        try:
            await asyncio.wait({task}, timeout=None if self._was_known else _MOMENT_S)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not self.is_newest(number) or task.cancelled():
            return SUPERSEDED
        return task.result() if task.done() else []

    def supersede(self) -> int:
        """Ends the waiting request without a suggestion. The generation continues. Returns the next one's number."""
        self._num_requests += 1
        self._answer_waiting(SUPERSEDED)
        return self._num_requests

    def is_newest(self, number: int) -> bool:
        """False if a request or an edit has come since `supersede` returned this number."""
        return number == self._num_requests

    def close(self) -> None:
        """Cancels the generation, and ends the waiting request without a suggestion."""
        self._note_edit()
        self._stop()

    def _note_edit(self) -> None:
        """Supersedes the request, and draws no more texts for it."""
        self.supersede()
        if self._drawing is not None:
            self._drawing.task.cancel()
            self._drawing = None

    def _can_answer(self, asked: EditorRequest) -> bool:
        generation = self._generation
        if generation is None or generation.says_nothing:
            return False
        return generation.find_text(asked) is not NoText.MISMATCH

    def _recall(self, asked: EditorRequest) -> Generation | None:
        return next((each for each in self._remembered if isinstance(each.find_text(asked), str)), None)

    async def _wait(self, asked: EditorRequest) -> str | NoText | NoSuggestion:
        waiting = self._waiting = _Waiting(asked, asyncio.get_running_loop().create_future())
        self._try_to_answer()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if self._waiting is waiting:  # otherwise the generation belongs to a newer request
                self._waiting = None
                self._stop()
            raise

    async def _start(self, asked: EditorRequest, number: int) -> NoSuggestion | None:
        """Starts a generation. Returns why it did not, if so."""
        backend = await self._starter.get()
        if not self.is_newest(number):
            return SUPERSEDED
        if backend is None:
            return self._starter.reason
        request = await self._builder.build(asked, Purpose.BEST)
        if not self.is_newest(number):
            return SUPERSEDED
        if isinstance(request, NoSuggestion):
            return request
        self._was_known = False
        generation = self._generation = Generation(asked)
        generation.task = asyncio.create_task(self._generate(generation, request, backend))
        # A callback, not a `finally`: a task that is cancelled before its first step runs none of its code.
        generation.task.add_done_callback(lambda _: self._discard_unfinished(generation))
        return None

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
            answer = self._generation.find_text(self._waiting.asked)
            if isinstance(answer, str):
                self._generation.note_shown(self._waiting.asked, answer)
            if answer is not NoText.PENDING:
                self._answer_waiting(answer)

    def _answer_waiting(self, answer: str | NoText | NoSuggestion) -> None:
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

    asked: EditorRequest
    answer: "asyncio.Future[str | NoText | NoSuggestion]"


@dataclass(frozen=True, slots=True)
class _Drawing:
    """More texts for a request, which are drawn at random."""

    asked: EditorRequest
    task: asyncio.Task[list[str]]


_MOMENT_S = 0.1  # nobody notices


async def _read_texts(backend: CompletionBackend, request: Cleared[CompletionRequest]) -> list[str]:
    """Returns texts that are drawn at random by their probability; none if the server has no room for that."""
    texts = [""] * request.value.num_candidates
    try:
        async with aclosing(backend.stream(request)) as chunks:
            async for chunk in chunks:
                texts[chunk.candidate] += chunk.text
    except MidtokenError:  # the best text is there, and a lost connection shows at the next request for it
        return []
    return texts
