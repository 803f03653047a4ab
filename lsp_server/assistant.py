"""Suggestions for the open documents, and the prefetch of the next one. It speaks no LSP, and reports to `Status`."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from lsprotocol.types import Position, Range

from inference.errors import MidtokenError
from lsp_server.backend import BackendFactory, BackendStarter, CompletionBackend, OnDownload
from lsp_server.context import move_window
from lsp_server.documents import Change, Document, num_units
from lsp_server.errors import EditorError, OutOfSyncError, to_midtoken_error
from lsp_server.guard import Guard
from lsp_server.indentation import find_project_unit
from lsp_server.items import Insertion, Suggestion, fit_all
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, Reason, find_disturbance, to_no_suggestion
from lsp_server.open_documents import OpenDocument, OpenDocuments
from lsp_server.session import EditorRequest, Purpose, build_editor_request, read_texts
from lsp_server.settings import ReadSettings
from lsp_server.status import Status

_PAUSE_S = 0.15  # keys that follow each other are mostly closer
_CURSOR_REST_S = 0.05  # the cursor is moved on much sooner while a key is held
_MAX_ITEMS = 3


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the next key will probably find: a document in which `text` has replaced `span`, and the cursor after it."""

    document: OpenDocument
    span: Range
    text: str = ""


class Assistant:
    """Has the open documents, the connection to the completion server and the prefetch.

    While the user does nothing, one place at a time is prefetched: the one that was expected last, after a short time
    without any event. The server then caches the text around it.
    """

    def __init__(
        self,
        connect: BackendFactory,
        languages: tuple[str, ...] | None,
        guard: Guard,
        list_folders: Callable[[], Iterable[str]],
        status: Status,
    ) -> None:
        """`languages`: those of the default model; None: any. `list_folders`: the URIs of those of the workspace."""
        self.status = status
        self.guard = guard
        self.starter = BackendStarter(partial(self._connect, connect), status)
        self.documents = OpenDocuments(list_folders, guard, status, self.starter, languages)
        self._expected: Expectation | None = None
        self._prefetch: asyncio.Task[None] | None = None

    def configure(self, read: ReadSettings, are_known: bool) -> None:
        """Sets the settings. `are_known`: the editor has answered the request for them. Until then nothing is sent."""
        self.documents.configure(read, are_known)

    def open(self, text: Document) -> None:
        """Adds a document, and starts to connect to the completion server."""
        self.close(text.uri)
        document = self.documents.open(text)
        start = Position(0, 0)
        self._expect(Expectation(document, Range(start, start)))

    def edit(self, uri: str, version: int, changes: Sequence[Change]) -> None:
        """Applies the edits of one notification. The user is told of edits that cannot be applied."""
        try:
            document = self._find(uri)
            document.edit(version, changes)
            self.documents.note_edit(document)
            end = document.text.find_edit_end()
            self._expect(None if end is None else Expectation(document, Range(end, end)))
        except EditorError as error:
            self.status.failed(error)

    def note_cursor(self, uri: str, selection: Range) -> None:
        """Notes that the user moved the cursor. The next key would replace the selection."""
        with contextlib.suppress(EditorError):
            document = self._find(uri)
            # After an edit that ended here, the key's own request follows.
            if document.text.last_edit is None or not document.text.was_edited_at(selection.end):
                self._expect(Expectation(document, selection), _CURSOR_REST_S)

    def mark_out_of_sync(self, uri: str | None) -> None:
        """Marks the text of a document as unknown after an edit that cannot be read; of all documents without a URI."""
        for document in [each for each in self.documents.by_uri.values() if uri in (None, each.text.uri)]:
            document.session.note_edit()
            try:
                document.text.mark_out_of_sync("the editor sent an edit that cannot be read")
            except OutOfSyncError as error:
                self.status.failed(error)
            self.documents.check(document)

    def close(self, uri: str) -> None:
        """Removes a document and cancels its generation. Does nothing if the document is not open."""
        document = self.documents.by_uri.get(uri)
        if document is not None:
            if self._expected is not None and self._expected.document is document:
                self._expect(None)
            self.documents.close(document)

    async def close_all(self) -> None:
        """Cancels all generations and closes the connection to the completion server."""
        for uri in list(self.documents.by_uri):
            self.close(uri)
        self.guard.exclusions.close()
        await self.starter.close()

    async def suggest(self, uri: str, position: Position, is_invoked: bool) -> Suggestion | NoSuggestion:
        """Returns what to suggest at a position, or why there is no suggestion. Reports a failure to the user.

        `is_invoked`: the user asked for a suggestion, and gets up to three.
        """
        try:
            found = await self._suggest(self._find(uri), position, is_invoked)
        except Exception as error:  # the outermost handler: a defect must fail only this request
            failure = to_midtoken_error(error)
            self.status.failed(failure)
            found = to_no_suggestion(failure)
        if isinstance(found, NoSuggestion):
            self.status.not_suggested(found, is_invoked)
        return found

    def _find(self, uri: str) -> OpenDocument:
        try:
            return self.documents.by_uri[uri]
        except KeyError:
            raise EditorError("the editor refers to a document that is not open") from None

    async def _suggest(self, document: OpenDocument, position: Position, is_invoked: bool) -> Suggestion | NoSuggestion:
        self._expect(None)
        session = document.session
        number = session.supersede()
        found = await self.documents.check_by_new_rules(document)
        if found is not None and found.reason is Reason.UNKNOWN_RULES:
            await session.wait_for(number, self.documents.read_rules([document]))
            found = self.documents.check(document)
        if not session.is_newest(number):
            return SUPERSEDED
        if found is not None:
            return found
        request = build_editor_request(document.text, position, self.documents.settings, is_invoked)
        if not is_invoked:
            found = find_disturbance(document.text, document.was_pasted, request.place, request.context)
        if found is not None:
            return found
        best = await session.complete(request)
        others = await session.sample_alternatives(request) if is_invoked and isinstance(best, str) else []
        if isinstance(best, NoSuggestion) or isinstance(others, NoSuggestion):
            return best if isinstance(best, NoSuggestion) else SUPERSEDED
        return self._offer(document, request, [best, *others])

    def _offer(self, document: OpenDocument, request: EditorRequest, texts: list[str]) -> Suggestion | NoSuggestion:
        """Returns what is left of the texts to insert. The first one is the best."""
        opened = [each.text for each in self.documents.by_uri.values()]
        insertions = fit_all(texts, request.context, partial(find_project_unit, document.text, opened))[:_MAX_ITEMS]
        best = insertions[0] if insertions else Insertion("")
        start = request.place.position
        end = Position(start.line, start.character + num_units(best.replaced_after, request.place.encoding))
        self._expect(Expectation(document, Range(start, end), best.text))
        if not insertions:
            return NoSuggestion(Reason.FILTERED if texts[0].strip() else Reason.NOTHING)
        document.offered = frozenset(request.context.line_before + each.text for each in insertions)
        return Suggestion(request.place, request.context, insertions)

    def _expect(self, expected: Expectation | None, after_s: float = _PAUSE_S) -> None:
        """Cancels what runs, and prefetches a place after a pause. None: nothing, since the place is not known."""
        if self._prefetch is not None:
            self._prefetch.cancel()  # the server keeps what it has cached
        self._expected = expected
        self._prefetch = None if expected is None else asyncio.create_task(self._prefetch_soon(expected, after_s))

    async def _prefetch_soon(self, expected: Expectation, after_s: float) -> None:
        """Sends what the next key will send. The same rules apply as for a key."""
        await asyncio.sleep(after_s)
        if not self.documents.settings.prefetch:
            return
        with contextlib.suppress(MidtokenError):  # the next key reports it
            await self.documents.read_rules([expected.document])
            request = self._build_expected(expected)
            cleared = await self.documents.build(expected.document, request, Purpose.PREFETCH)
            if not isinstance(cleared, NoSuggestion) and (backend := await self.starter.get()) is not None:
                await read_texts(backend, cleared)

    def _build_expected(self, expected: Expectation) -> EditorRequest:
        document, settings = expected.document.text, self.documents.settings
        move_window(document, expected.span.start, settings, is_waited_for=False)
        edited, position = document.with_edit(expected.span, expected.text)
        return build_editor_request(edited, position, settings)

    async def _connect(self, connect: BackendFactory, on_download: OnDownload) -> CompletionBackend:
        backend = await connect(self.documents.chosen.settings, on_download)
        self.documents.note_connected(backend.description)
        self._expect(self._expected)
        return backend
