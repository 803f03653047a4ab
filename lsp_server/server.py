"""What the LSP features call: it hands each edit and each request to the session of its document."""

import asyncio
import contextlib
import os
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import FeatureRequestError, JsonRpcException

from lsp_server.backend import BackendFactory, BackendStarter, CompletionBackend, OnDownload
from lsp_server.documents import Document, Notebook, num_units
from lsp_server.editor_request import EditorRequest, build_editor_request
from lsp_server.errors import EditorError, OutOfSyncError, to_midtoken_error
from lsp_server.filters import Insertion, fit_all
from lsp_server.items import Suggestion
from lsp_server.line_ends import LineEnds, find_line_ends
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, Reason, find_disturbance, to_no_suggestion
from lsp_server.open_documents import OpenDocuments
from lsp_server.prefetch import CURSOR_REST_S, Expectation, Prefetcher
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from lsp_server.project.grammar import BY_EXTENSION
from lsp_server.project_indentation import find_project_unit
from lsp_server.project_text import ProjectText
from lsp_server.protocol import MidtokenProtocol, TextServer, build_strict_converter
from lsp_server.request_builder import RequestBuilder
from lsp_server.session import Session
from lsp_server.settings import SECTION, SettingsSources
from lsp_server.status import Status, Window

_START = types.Range(types.Position(0, 0), types.Position(0, 0))
_NOTEBOOKS = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")], save=True)
_MAX_ITEMS = 3


class MidtokenServer(TextServer):
    """The language server without its features, which `lsp_server.features.build_server` adds."""

    protocol: MidtokenProtocol

    def __init__(
        self,
        connect: BackendFactory,
        languages: tuple[str, ...] | None = None,
        policy: Policy | None = None,
        is_remote: bool = False,
        index_dir: Path | None = None,
    ) -> None:
        """`languages`: the identifiers of the languages that the model knows (LSP, TextDocumentItem); None: any.

        After connecting, the languages that the completion server reports apply instead.
        """
        super().__init__(
            "midtoken",
            version("midtoken"),
            protocol_cls=MidtokenProtocol,
            converter_factory=build_strict_converter,
            notebook_document_sync=_NOTEBOOKS,
        )
        self.editor_id: int | None = None  # of its process, if that is the parent of this one
        self.encoding = types.PositionEncodingKind.Utf16
        self._writes_lf = False
        self.line_ends = LineEnds.UNKNOWN
        self.sessions: dict[str, Session] = {}  # by URI
        self._status = Status(Window(self))
        self._starter = BackendStarter(partial(self._connect, connect), self._status)
        guard = Guard(policy, is_remote=is_remote)
        self.documents = OpenDocuments(self, guard, self._status, self._starter, languages)
        self.project = ProjectText(self.documents, index_dir, self._expect_again)
        self._builder = RequestBuilder(self.documents, self.project)
        self._prefetcher = Prefetcher(self.documents, self._builder, self._starter)
        self._closing = asyncio.Lock()
        self._settings_sources = SettingsSources()
        self._are_settings_known = False
        self.configuration_wait_s = 5.0  # for an answer to workspace/configuration

    def initialize(self, params: types.InitializeParams) -> None:
        r"""Sets the position encoding that pygls negotiated, the editor's process, and the first settings.

        In Neovim, the text of items has \n as line ends in any document: it splits the text there, and would draw and
        insert each \r as ^M.
        """
        self._writes_lf = params.client_info is not None and params.client_info.name == "Neovim"
        # Any other process with this id need not be the editor: ids in another container mean nothing here.
        self.editor_id = params.process_id if params.process_id == os.getppid() else None
        self.encoding = types.PositionEncodingKind(self.workspace.position_encoding)
        self.line_ends = find_line_ends(params.client_info.name if params.client_info else "")
        self._settings_sources.initialization_options = params.initialization_options
        self._read_settings()

    def push_settings(self, values: Any) -> None:
        """Sets the settings of workspace/didChangeConfiguration (any JSON, perhaps with those of other servers)."""
        self._settings_sources.pushed = values
        self._read_settings()

    async def pull_settings(self) -> None:
        """Requests the editor's settings. On an error they stay unchanged.

        Until the first answer nothing is sent, but an editor that does not answer is not waited for for ever.
        """
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.configuration:
            params = types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
            asking = asyncio.ensure_future(self.workspace_configuration_async(params))
            await asyncio.wait({asking}, timeout=self.configuration_wait_s)
            if not asking.done():
                self._status.not_configured(self.configuration_wait_s)
                self._know_settings()
            with contextlib.suppress(JsonRpcException):
                answer: Any = await asking  # any JSON: see MidtokenProtocol
                self._settings_sources.pulled = answer[0] if isinstance(answer, list) and answer else None
        self._know_settings()

    def open(self, item: types.TextDocumentItem, notebook: Notebook | None = None) -> None:
        """Adds a document that the editor opened, and starts to connect to the completion server."""
        self.close(item.uri)
        document = Document(item, self.encoding, notebook, self.line_ends)
        self.sessions[item.uri] = Session(document, self._builder, self._starter, self._status)
        self.documents.open(document)
        self.project.refresh(document)
        self._prefetcher.schedule(Expectation(document, _START))

    def change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Applies the edits of one notification. The user is told of edits that cannot be applied."""
        try:
            session = self._find_session(params.text_document.uri)
            session.edit(params.text_document.version, params.content_changes)
            self.documents.note_edit(session.document)
            self.project.refresh_at_rest(session.document)
            end = session.document.find_edit_end()
            self._prefetcher.schedule(None if end is None else Expectation(session.document, types.Range(end, end)))
        except EditorError as error:
            self._status.failed(error)

    def cursor_moved(self, uri: str, selection: types.Range) -> None:
        """Notes that the user moved the cursor. The next key would replace the selection."""
        with contextlib.suppress(EditorError):
            document = self._find_session(uri).document
            # After an edit that ended here, the key's own request follows.
            if document.last_edit is None or not document.was_edited_at(selection.end):
                self._prefetcher.schedule(Expectation(document, selection), CURSOR_REST_S)

    def note_save(self, uri: str) -> None:
        """Notes that a document or a notebook was saved."""
        self.project.note_changed([uri])
        if uri in self.sessions:
            self.project.refresh(self.sessions[uri].document)
        self._prefetcher.reschedule()

    def mark_out_of_sync(self, uri: str | None) -> None:
        """Marks the text of a document as unknown after an edit that cannot be read; of all documents without a URI."""
        for session in [each for each in self.sessions.values() if uri in (None, each.document.uri)]:
            try:
                session.mark_out_of_sync()
            except OutOfSyncError as error:
                self._status.failed(error)
            self.documents.check(session.document)

    def close(self, uri: str) -> None:
        """Removes a document and cancels its generation. Does nothing if the document is not open."""
        session = self.sessions.pop(uri, None)
        if session is not None:
            self._prefetcher.forget(session.document)
            self._builder.forget(uri)
            self.documents.close(session.document)
            session.close()

    async def suggest(self, uri: str, position: types.Position, is_invoked: bool = False) -> Suggestion | NoSuggestion:
        """Returns what to suggest at a position, or why there is no suggestion. Reports a failure to the user.

        `is_invoked`: the user asked for a suggestion, and gets up to three.
        """
        try:
            found = await self._suggest(self._find_session(uri), position, is_invoked)
        except EditorError as error:
            self._status.failed(error)
            found = to_no_suggestion(error)
        except Exception as error:  # the outermost handler: a defect must fail only this request
            self.report_server_error(error, type(error))
            found = NoSuggestion(Reason.FAILED)
        if isinstance(found, NoSuggestion):
            self._status.not_suggested(found, is_invoked)
        return found

    async def close_all(self) -> None:
        """Cancels all generations and closes the connection to the completion server."""
        async with self._closing:
            for uri in list(self.sessions):
                self.close(uri)
            await self.project.close()
            self.documents.guard.exclusions.close()
            await self._starter.close()

    async def settle(self) -> None:
        """Waits until what the last message has started is under way, and until what is done is answered.

        A request must see the text before edits that came after it, no answer may be for the text before an edit that
        has arrived, and `exit` may follow `shutdown` at once.
        """
        await asyncio.sleep(0)  # tasks begin
        async with self._closing:
            while self.protocol.owes_answer():
                await asyncio.sleep(0)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Shows an error once, unless the editor gets it as the reply to a request.

        pygls's own method would show a message that may contain source text.
        """
        if source is not FeatureRequestError:
            self._status.failed(to_midtoken_error(error))

    def _find_session(self, uri: str) -> Session:
        try:
            return self.sessions[uri]
        except KeyError:
            raise EditorError("the editor refers to a document that is not open") from None

    async def _suggest(self, session: Session, position: types.Position, is_invoked: bool) -> Suggestion | NoSuggestion:
        self._prefetcher.schedule(None)
        number = session.supersede()
        found = await self.documents.check_by_new_rules(session.document)
        if found is not None and found.reason is Reason.UNKNOWN_RULES:
            await session.wait_for(number, self.documents.wait_for_rules(session.document))
            found = self.documents.check(session.document)
        if not session.is_newest(number):
            return SUPERSEDED
        if found is not None:
            return found
        request = build_editor_request(session.document, position, self.documents.settings, is_invoked)
        found = None if is_invoked else find_disturbance(request.document, request.place, request.context)
        if found is not None:
            return found
        best = await session.complete(request)
        others = await session.sample_alternatives(request) if is_invoked and isinstance(best, str) else []
        if isinstance(best, NoSuggestion) or isinstance(others, NoSuggestion):
            return best if isinstance(best, NoSuggestion) else SUPERSEDED
        return self._offer(session, request, [best, *others])

    def _offer(self, session: Session, request: EditorRequest, texts: list[str]) -> Suggestion | NoSuggestion:
        """Returns what is left of the texts to insert. The first one is the best."""
        find_unit = partial(find_project_unit, request.document, self.documents.by_uri.values())
        insertions = fit_all(texts, request.context, find_unit)[:_MAX_ITEMS]
        self._expect_taken(request, insertions[0] if insertions else Insertion(""))
        if not insertions:
            return NoSuggestion(Reason.FILTERED if texts[0].strip() else Reason.NOTHING)
        session.note_offered(request.context.line_before, insertions)
        place = replace(request.place, line_end="\n") if self._writes_lf else request.place
        return Suggestion(place, request.context, insertions)

    def _expect_taken(self, request: EditorRequest, insertion: Insertion) -> None:
        start = request.place.position
        end = types.Position(start.line, start.character + num_units(insertion.replaced_after, request.place.encoding))
        self._prefetcher.schedule(Expectation(request.document, types.Range(start, end), insertion.text))

    async def _connect(self, connect: BackendFactory, on_download: OnDownload) -> CompletionBackend:
        backend = await connect(self.documents.chosen, on_download)
        self.documents.note_connected(backend.description)
        self.project.refresh_all()
        self._prefetcher.reschedule()
        return backend

    def _know_settings(self) -> None:
        self._are_settings_known = True
        self._read_settings()

    def _read_settings(self) -> None:
        read = self._settings_sources.read()
        self.documents.configure(read, self._are_settings_known)
        self.read_folders()

    def read_folders(self) -> None:
        """Reads the files of the workspace's folders, if it is known what may be read."""
        if self._are_settings_known:
            may_read = self.documents.settings.enabled and self.documents.refusal is None
            self.project.configure(self.workspace.folders if may_read else ())

    async def watch_files(self) -> None:
        """Has the editor tell which files of the workspace change, if it can."""
        workspace = self.client_capabilities.workspace
        watching = workspace and workspace.did_change_watched_files
        if watching and watching.dynamic_registration:
            watchers = [types.FileSystemWatcher(f"**/*{extension}") for extension in BY_EXTENSION]
            options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
            method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
            with contextlib.suppress(JsonRpcException):
                await self.client_register_capability_async(
                    types.RegistrationParams([types.Registration("files", method, options)])
                )

    def _expect_again(self) -> None:
        self._prefetcher.reschedule()
