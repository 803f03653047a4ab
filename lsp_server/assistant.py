"""Suggestions for the open documents. It speaks no LSP, and tells the user by `Status`."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from lsprotocol.types import Position, Range

from lsp_server.backend import BackendFactory, BackendStarter, CompletionBackend, OnDownload
from lsp_server.documents import Change, Document, num_units
from lsp_server.errors import EditorError, OutOfSyncError, to_midtoken_error
from lsp_server.filters import Insertion, fit_all
from lsp_server.items import Suggestion
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, Reason, find_disturbance, to_no_suggestion
from lsp_server.open_document import OpenDocument
from lsp_server.open_documents import OpenDocuments
from lsp_server.prefetch import CURSOR_REST_S, Expectation, Prefetcher
from lsp_server.privacy.guard import Guard
from lsp_server.project_indentation import find_project_unit
from lsp_server.project_text import ProjectText
from lsp_server.session import EditorRequest, build_editor_request
from lsp_server.settings import ReadSettings
from lsp_server.status import Status

_START = Range(Position(0, 0), Position(0, 0))
_MAX_ITEMS = 3


class Assistant:
    """Has the open documents, the connection to the completion server, the project and the prefetch."""

    def __init__(
        self,
        connect: BackendFactory,
        languages: tuple[str, ...] | None,
        guard: Guard,
        index_dir: Path | None,
        list_folders: Callable[[], Iterable[str]],
        status: Status,
    ) -> None:
        """`languages`: those of the default model; None: any. `list_folders`: the URIs of those of the workspace."""
        self.status = status
        self.guard = guard
        self._list_folders = list_folders
        self.starter = BackendStarter(partial(self._connect, connect), status)
        self.documents = OpenDocuments(list_folders, guard, status, self.starter, languages)
        self.project = ProjectText(self.documents, guard.exclusions, index_dir, lambda: self._prefetcher.reschedule())
        self._prefetcher = Prefetcher(self.documents, self.starter)

    def configure(self, read: ReadSettings, are_known: bool) -> None:
        """Sets the settings. `are_known`: the editor has answered the request for them. Until then nothing is sent."""
        self.documents.configure(read, are_known)
        self.read_folders()

    def read_folders(self) -> None:
        """Reads the files of the workspace's folders, if it is known what may be read."""
        if self.documents.are_settings_known:
            may_read = self.documents.settings.enabled and self.documents.refusal is None
            self.project.configure(self._list_folders() if may_read else ())

    def open(self, text: Document) -> None:
        """Adds a document, and starts to connect to the completion server."""
        self.close(text.uri)
        document = OpenDocument(text, self.documents.build, self.starter, self.status)
        self.documents.open(document)
        self.project.refresh(document)
        self._prefetcher.schedule(Expectation(document, _START))

    def edit(self, uri: str, version: int, changes: Sequence[Change]) -> None:
        """Applies the edits of one notification. The user is told of edits that cannot be applied."""
        try:
            document = self._find(uri)
            document.edit(version, changes)
            self.documents.note_edit(document)
            self.project.refresh_at_rest(document)
            end = document.text.find_edit_end()
            self._prefetcher.schedule(None if end is None else Expectation(document, Range(end, end)))
        except EditorError as error:
            self.status.failed(error)

    def note_cursor(self, uri: str, selection: Range) -> None:
        """Notes that the user moved the cursor. The next key would replace the selection."""
        with contextlib.suppress(EditorError):
            document = self._find(uri)
            # After an edit that ended here, the key's own request follows.
            if document.text.last_edit is None or not document.text.was_edited_at(selection.end):
                self._prefetcher.schedule(Expectation(document, selection), CURSOR_REST_S)

    def note_save(self, uri: str) -> None:
        """Notes that a document or a notebook was saved."""
        self.project.note_changed([uri])
        if uri in self.documents.by_uri:
            self.project.refresh(self.documents.by_uri[uri])
        self._prefetcher.reschedule()

    def mark_out_of_sync(self, uri: str | None) -> None:
        """Marks the text of a document as unknown after an edit that cannot be read; of all documents without a URI."""
        for document in [each for each in self.documents.by_uri.values() if uri in (None, each.text.uri)]:
            try:
                document.mark_out_of_sync()
            except OutOfSyncError as error:
                self.status.failed(error)
            self.documents.check(document)

    def close(self, uri: str) -> None:
        """Removes a document and cancels its generation. Does nothing if the document is not open."""
        document = self.documents.by_uri.get(uri)
        if document is not None:
            self._prefetcher.forget(document)
            self.documents.close(document)

    async def close_all(self) -> None:
        """Cancels all generations and closes the connection to the completion server."""
        for uri in list(self.documents.by_uri):
            self.close(uri)
        await self.project.close()
        self.guard.exclusions.close()
        await self.starter.close()

    async def suggest(self, uri: str, position: Position, is_invoked: bool) -> Suggestion | NoSuggestion:
        """Returns what to suggest at a position, or why there is no suggestion. Reports a failure to the user.

        `is_invoked`: the user asked for a suggestion, and gets up to three.
        """
        try:
            found = await self._suggest(self._find(uri), position, is_invoked)
        except EditorError as error:
            self.status.failed(error)
            found = to_no_suggestion(error)
        except Exception as error:  # the outermost handler: a defect must fail only this request
            self.status.failed(to_midtoken_error(error))
            found = NoSuggestion(Reason.FAILED)
        if isinstance(found, NoSuggestion):
            self.status.not_suggested(found, is_invoked)
        return found

    def _find(self, uri: str) -> OpenDocument:
        try:
            return self.documents.by_uri[uri]
        except KeyError:
            raise EditorError("the editor refers to a document that is not open") from None

    async def _suggest(self, document: OpenDocument, position: Position, is_invoked: bool) -> Suggestion | NoSuggestion:
        self._prefetcher.schedule(None)
        session = document.session
        number = session.supersede()
        found = await self.documents.check_by_new_rules(document)
        if found is not None and found.reason is Reason.UNKNOWN_RULES:
            await session.wait_for(number, self.documents.wait_for_rules(document))
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
        self._expect_taken(document, request, insertions[0] if insertions else Insertion(""))
        if not insertions:
            return NoSuggestion(Reason.FILTERED if texts[0].strip() else Reason.NOTHING)
        document.note_offered(request.context.line_before, insertions)
        return Suggestion(request.place, request.context, insertions)

    def _expect_taken(self, document: OpenDocument, request: EditorRequest, insertion: Insertion) -> None:
        start = request.place.position
        end = Position(start.line, start.character + num_units(insertion.replaced_after, request.place.encoding))
        self._prefetcher.schedule(Expectation(document, Range(start, end), insertion.text))

    async def _connect(self, connect: BackendFactory, on_download: OnDownload) -> CompletionBackend:
        backend = await connect(self.documents.chosen, on_download)
        self.documents.note_connected(backend.description)
        self.project.refresh_all()
        self._prefetcher.reschedule()
        return backend
