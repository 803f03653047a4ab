"""An open document and its requests. A new request supersedes the older one, and generated text is reused."""

import asyncio
import enum
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from lsprotocol.types import Position

from inference.brackets import CLOSERS, QUOTES
from inference.errors import MidtokenError, ServerUnreachableError
from inference.likely_text import LikelyText
from inference.protocol.completion import CompletionChunk, CompletionRequest, FinishReason
from lsp_server.backend import CompletionBackend, Connector
from lsp_server.context import Context, cut_context, move_window
from lsp_server.documents import ContentChange, Document, Place
from lsp_server.errors import to_midtoken_error
from lsp_server.guard import Cleared
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, Reason, is_paste, to_no_suggestion
from lsp_server.settings import Settings
from lsp_server.status import Status

_CUTS = (FinishReason.DEADLINE, FinishReason.CANCELLED, FinishReason.SUPERSEDED)


class Purpose(enum.Enum):
    """What the answer of the completion server is for."""

    BEST = enum.auto()  # the most likely text
    ALTERNATIVES = enum.auto()  # some other texts, drawn at random
    PREFETCH = enum.auto()  # no answer: the server caches the text before a key asks for it


@dataclass(frozen=True, slots=True)
class EditorRequest:
    """A request, with the text and the settings at the time of the request. A later edit makes it obsolete.

    Two requests are equal if their texts and settings are equal.
    """

    place: Place = field(compare=False)
    context: Context  # the text around the cursor; what is sent may differ
    settings: Settings
    confidence: float  # the least probability of the text that is shown


def build_editor_request(
    document: Document, position: Position, settings: Settings, is_invoked: bool = False
) -> EditorRequest:
    """Returns the request at a position. `is_invoked`: the user asked, and also gets an unlikely text.

    Raises EditorError.
    """
    place = document.find_place(position)
    move_window(document, place.position, settings)
    context = cut_context(document, place.position, settings)
    return EditorRequest(place, context, settings, 0.0 if is_invoked else settings.confidence)


class NoText(enum.Enum):
    """Why a generation has no text for a request."""

    PENDING = enum.auto()  # the generation agrees with the request, and more text is to come
    MISMATCH = enum.auto()  # the generation does not continue the request's text


@dataclass(slots=True, eq=False)
class Generation:
    """The text that the model generates for a request, as far as it has arrived."""

    request: EditorRequest
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

    def find_text(self, request: EditorRequest) -> str | NoText:
        """Returns the text that is left to insert for a request, which may be newer than the generation's own.

        While more text is to come that may be shown, it consists of whole lines.
        """
        if self.is_dead or request.settings != self.request.settings:
            return NoText.MISMATCH
        if self.finish_reason is FinishReason.UNLIKELY and request.confidence < self.request.confidence:
            return NoText.MISMATCH
        prefix, suffix = self.request.context.prefix, self.request.context.suffix
        if not request.context.prefix.startswith(prefix) or not _differ_by_closers(request.context.suffix, suffix):
            return NoText.MISMATCH
        if self.finish_reason is FinishReason.SUFFIX and len(request.context.suffix) < len(suffix):
            return NoText.MISMATCH  # closers were deleted, which the text lacks
        typed = request.context.prefix[len(prefix) :]
        if not self.likely.text.startswith(typed):
            is_behind = not self.is_finished and self.likely.text != "" and typed.startswith(self.likely.text)
            return NoText.PENDING if is_behind else NoText.MISMATCH
        likely_end = self.likely.count_likely(len(typed), request.confidence)
        remaining = self.likely.text[len(typed) : max(likely_end, self.num_shown)]
        if self.is_finished or likely_end < len(self.likely.text):  # what is still to come is less likely
            all_accepted = typed != "" and not remaining.strip()  # the next text needs a new generation
            return NoText.MISMATCH if all_accepted else remaining
        whole_lines = remaining.rpartition("\n")[0]
        return whole_lines if whole_lines.strip() else NoText.PENDING

    def show_text(self, request: EditorRequest) -> str | NoText:
        """Does the same as `find_text`, and keeps the text visible as long as the typed text agrees with it."""
        text = self.find_text(request)
        if isinstance(text, str):
            self.num_shown = max(
                self.num_shown, len(request.context.prefix) - len(self.request.context.prefix) + len(text)
            )
        return text

    @property
    def was_cut_empty(self) -> bool:
        """True if it ended before it had any text. It answers its own request, and no later one."""
        return self.finish_reason in _CUTS and not self.likely.text.strip()

    @property
    def is_dead(self) -> bool:
        """True if the task ended before the text was complete."""
        return not self.is_finished and self.task is not None and self.task.done()


def _differ_by_closers(suffix: str, other: str) -> bool:
    """True if the texts are equal except for closers at the start of one, which editors insert and overtype."""
    shorter, longer = sorted((suffix, other), key=len)
    return longer.endswith(shorter) and all(char in {*CLOSERS, *QUOTES} for char in longer.removesuffix(shorter))


# Returns what to send for a request in a document, or why nothing may be sent.
Build = Callable[["Session", EditorRequest, Purpose], Awaitable[Cleared[CompletionRequest] | NoSuggestion]]

_numbers = count()
_MAX_REMEMBERED = 16  # generations, with the text around the cursor of each
_MOMENT_S = 0.1  # a delay that users do not notice
_SOON_S = 2.0  # for which an editor waits for an answer


class Session:
    """All that belongs to an open document; closing the document drops it. Answers its requests, one at a time.

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

    def __init__(self, document: Document, build: Build, connector: Connector, status: Status) -> None:
        self.document = document
        self.name = str(next(_numbers))  # of the document in requests: a URI may be longer than a name
        self.was_pasted = False  # what the last edit inserted (lsp_server.no_suggestion)
        self.off: NoSuggestion | None = None  # why it gets no suggestions, as the user was told
        self.check: asyncio.Task[None] | None = None  # waits for the rules, and then says whether it gets some
        self.folder_unit: asyncio.Future[str | None] | None = None  # of indentation, in the files of its folder
        self.offered: frozenset[str] = frozenset()  # what was suggested last, from the start of the cursor's line on
        self._build = build
        self._connector = connector
        self._status = status
        self._generation: Generation | None = None
        self._remembered: deque[Generation] = deque(maxlen=_MAX_REMEMBERED)  # finished ones, the newest first
        self._changed = asyncio.Event()  # a request or text has come, or the generation has ended
        self._superseded = asyncio.Event()
        self._drawing: tuple[EditorRequest, asyncio.Task[list[str]]] | None = None  # more texts, drawn at random
        self._was_known = False  # whether the last answer was, so that the editor may show it already
        self._num_requests = 0  # so far; an edit counts, too

    def edit(self, changes: Sequence[ContentChange]) -> None:
        """Applies the edits of one notification, and supersedes the waiting request. Raises EditorError."""
        self.note_edit()
        self.was_pasted = False
        self.document.apply(changes)
        self.was_pasted = is_paste(self.document.last_edit, self.offered)

    def note_edit(self) -> None:
        """Supersedes the waiting request, and draws no more texts for it."""
        self.supersede()
        self._stop_drawing(None)

    async def complete(self, request: EditorRequest) -> str | NoSuggestion:
        """Returns the text to suggest, which may be empty, or why there is no suggestion.

        Reports a failure to the user. Cancelling the call cancels the generation that it waits for.
        """
        number, self._was_known = self.supersede(), True
        self._stop_drawing(request)
        if self._generation is not None and self._generation.was_cut_empty:
            self._stop()
        while self.is_newest(number):
            text = self._find_text(request)
            if isinstance(text, str):
                return text
            if self._generation is None:
                found = await self._start(request, number)
            else:
                found = await self._wait(self._generation)
            if found is not None and self.is_newest(number):
                return found
        return SUPERSEDED

    async def sample_alternatives(self, request: EditorRequest) -> list[str] | NoSuggestion:
        """Returns more texts for the request that `complete` answered last, in no order; none if the server is busy.

        If the answer of `complete` was new, this waits at most a tenth of a second, because the editor shows nothing
        before. Texts that arrive later are returned when the editor repeats the request to show the next suggestion.
        """
        number = self._num_requests
        if self._drawing is None:
            backend, cleared = await self._connector.get(), await self._build(self, request, Purpose.ALTERNATIVES)
            if not self.is_newest(number):
                return SUPERSEDED
            if backend is None or isinstance(cleared, NoSuggestion):
                return []
            self._drawing = request, asyncio.create_task(read_texts(backend, cleared))
        task = self._drawing[1]
        try:
            await asyncio.wait({task}, timeout=None if self._was_known else _MOMENT_S)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not self.is_newest(number) or task.cancelled():
            return SUPERSEDED
        texts = task.result() if task.done() else []
        if task.done() and not texts:  # the server was busy; when the editor asks again, it may not be
            self._drawing = None
        return texts

    def supersede(self) -> int:
        """Ends the waiting request without a suggestion; the generation continues. Returns a number for `is_newest`."""
        self._num_requests += 1
        self._superseded.set()
        self._superseded = asyncio.Event()
        self._wake()
        return self._num_requests

    def is_newest(self, number: int) -> bool:
        """True if neither a request nor an edit has come since `supersede` returned this number."""
        return number == self._num_requests

    async def wait_for(self, number: int, coming: Coroutine[Any, Any, None]) -> None:
        """Waits for a coroutine that ends soon; not for long, and not after the request was superseded.

        To many clients, an empty answer is final: they do not ask again before the next key.
        """
        tasks = {asyncio.ensure_future(coming), asyncio.ensure_future(self._superseded.wait())}
        try:
            if self.is_newest(number):
                await asyncio.wait(tasks, timeout=_SOON_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()

    def close(self) -> None:
        """Cancels all that runs for the document, and ends the waiting request without a suggestion."""
        self.note_edit()
        self._stop()
        if self.check is not None:
            self.check.cancel()

    def _find_text(self, request: EditorRequest) -> str | NoText:
        """Returns the text to insert from the current generation; if that does not agree, from a finished one."""
        if self._generation is None or self._generation.find_text(request) is NoText.MISMATCH:
            self._stop()
            known = (each for each in self._remembered if isinstance(each.find_text(request), str))
            self._generation = next(known, None)
        return NoText.MISMATCH if self._generation is None else self._generation.show_text(request)

    async def _wait(self, generation: Generation) -> NoSuggestion | None:
        """Waits for text, a newer request or an edit. If the generation has failed or was cancelled, returns why."""
        number = self._num_requests
        try:
            await self._changed.wait()
        except asyncio.CancelledError:
            if self.is_newest(number):  # otherwise the generation belongs to a newer request
                self._stop()
            raise
        return (generation.failure or SUPERSEDED) if generation.is_dead else None

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _start(self, request: EditorRequest, number: int) -> NoSuggestion | None:
        """Starts a generation. Returns why there is none, if it cannot be started."""
        backend = await self._connector.get()
        if backend is None and self._connector.unavailable.reason is Reason.STARTING:
            await self.wait_for(number, self._connector.wait())
            backend = await self._connector.get()
        if not self.is_newest(number):
            return SUPERSEDED
        if backend is None:
            return self._connector.unavailable
        cleared = await self._build(self, request, Purpose.BEST)
        if not self.is_newest(number):
            return SUPERSEDED
        if isinstance(cleared, NoSuggestion):
            return cleared
        self._was_known = False
        generation = self._generation = Generation(request)
        generation.task = asyncio.create_task(self._generate(generation, cleared, backend))
        # A callback, not a `finally`: a task that is cancelled before its first step runs none of its code.
        generation.task.add_done_callback(lambda _: self._wake())
        return None

    async def _generate(
        self, generation: Generation, cleared: Cleared[CompletionRequest], backend: CompletionBackend
    ) -> None:
        try:
            async with aclosing(backend.stream(cleared)) as chunks:
                async for chunk in chunks:
                    generation.add(chunk)
                    self._wake()
                    await asyncio.sleep(0)  # the request takes the text, even if an error comes next
            generation.is_finished = True
            if not generation.was_cut_empty:
                self._remembered.appendleft(generation)
            self._wake()
            self._status.working()
        except Exception as error:  # nobody awaits this task's result, so every error is reported here
            self._report(error, generation, backend)

    def _report(self, error: Exception, generation: Generation, backend: CompletionBackend) -> None:
        failure = to_midtoken_error(error)
        # It is logged, so what a server has said is not in it; the user is told that.
        generation.failure = NoSuggestion(to_no_suggestion(failure).reason)
        # Once the backend was dropped, the user has been told of the lost connection. Later errors follow from it.
        if generation is self._generation and self._connector.is_current(backend):
            self._status.failed(failure)
        if isinstance(error, ServerUnreachableError):
            self._connector.drop(backend)

    def _stop_drawing(self, request: EditorRequest | None) -> None:
        """Draws no more texts for another request than this."""
        if self._drawing is not None and self._drawing[0] != request:
            self._drawing[1].cancel()
            self._drawing = None

    def _stop(self) -> None:
        if self._generation is not None and self._generation.task is not None:
            self._generation.task.cancel()
        self._generation = None


async def read_texts(backend: CompletionBackend, cleared: Cleared[CompletionRequest]) -> list[str]:
    """Returns the texts of an answer in full; none if there is an error."""
    texts = [""] * cleared.value.num_candidates
    try:
        async with aclosing(backend.stream(cleared)) as chunks:
            async for chunk in chunks:
                texts[chunk.candidate] += chunk.text
    except MidtokenError:  # the best text is there, and a lost connection shows at the next request for it
        return []
    return texts
