"""The state that the LSP features use: the documents, a session for each, the settings and the one backend."""

import asyncio
import contextlib
import uuid
from contextlib import aclosing
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lsprotocol import types
from pygls.exceptions import FeatureRequestError, JsonRpcException
from pygls.lsp.server import LanguageServer

from inference.platforms import is_there
from inference.protocol.completion import Chunks, CompletionRequest, Priority
from lsp_server.backend import BackendFactory, BackendStarter, CompletionBackend, OnDownload
from lsp_server.battery import Battery
from lsp_server.context import Context, cut_context
from lsp_server.documents import Document, Notebook, Place, num_units
from lsp_server.errors import EditorError, NotSentError, OutOfStepError, to_midtoken_error
from lsp_server.filters import Insertion, fit_all
from lsp_server.indentation import write_blanks
from lsp_server.items import Suggestion
from lsp_server.no_suggestion import (
    SNOOZED,
    SUPERSEDED,
    NoSuggestion,
    Reason,
    find_disturbance,
    find_document_reason,
    is_paste,
    to_no_suggestion,
)
from lsp_server.prefetch import REST_S, Expectation, Prefetcher
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Cleared, Guard
from lsp_server.privacy.redaction import cut_excerpt
from lsp_server.protocol import MidtokenProtocol, build_strict_converter
from lsp_server.quiet import Quiet, list_scopes
from lsp_server.related import RelatedText
from lsp_server.session import Change, Question, Session
from lsp_server.settings import SECTION, Settings, SettingsSources
from lsp_server.status import Status, Window
from lsp_server.usage import UsageFile

_START = types.Range(types.Position(0, 0), types.Position(0, 0))
_NOTEBOOKS = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")], save=True)
_MAX_ITEMS = 3
_MAX_OTHERS = 20  # other documents whose declarations may be sent, those that were opened or edited last


class MidtokenServer(LanguageServer):
    """The language server without its features, which `lsp_server.features.build_server` adds."""

    protocol: MidtokenProtocol

    def __init__(
        self,
        connect: BackendFactory,
        languages: tuple[str, ...] | None = None,
        policy: Policy | None = None,
        is_remote: bool = False,
        usage: UsageFile | None = None,
    ) -> None:
        """`languages`: the identifiers of those that the model knows (LSP, TextDocumentItem); None: any.

        They hold until it has connected; then the server says which they are.
        """
        super().__init__(
            "midtoken",
            find_version("midtoken") or "0",
            protocol_cls=MidtokenProtocol,
            converter_factory=build_strict_converter,
            notebook_document_sync=_NOTEBOOKS,
        )
        self.protocol.on_unreadable_edit = self.lose_text
        self.editor_id: int | None = None  # of its process, if that is on this machine
        self.settings = Settings()
        self.usage = usage or UsageFile(None)
        self.encoding = types.PositionEncodingKind.Utf16
        self.sessions: dict[str, Session] = {}  # of the open documents; the one that was opened or edited last is last
        self._languages = self._default_languages = languages
        self._guard = Guard(policy, is_remote=is_remote)
        self._related = RelatedText()
        self._status = Status(Window(self))
        self.quiet = Quiet(self._status.snoozed)
        self._battery = Battery()
        self._starter = BackendStarter(partial(self._connect, connect), self._status)
        self._prefetcher = Prefetcher(self._prefetch)
        self._closing = asyncio.Lock()
        self._settings_sources = SettingsSources()
        self._are_settings_known = False
        self._refusal: str | None = None  # why nothing may be sent, by the settings
        self._tenant = uuid.uuid4().hex  # the server shares nothing that it remembers with other editors

    def initialize(self, params: types.InitializeParams) -> None:
        """Sets the position encoding that pygls negotiated, the editor's process, and the first settings."""
        self.editor_id = params.process_id if params.process_id and is_there(params.process_id) else None
        self.encoding = types.PositionEncodingKind(self.workspace.position_encoding)
        self._settings_sources.initialization_options = params.initialization_options
        self._read_settings()

    def push_settings(self, values: Any) -> None:
        """Sets the settings of workspace/didChangeConfiguration (any JSON, perhaps with those of other servers)."""
        self._settings_sources.pushed = values
        self._read_settings()

    async def pull_settings(self) -> None:
        """Requests the editor's settings. Until the first answer nothing is sent; on an error they stay unchanged."""
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.configuration:
            params = types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
            with contextlib.suppress(JsonRpcException):
                answer: Any = await self.workspace_configuration_async(params)  # any JSON: see MidtokenProtocol
                self._settings_sources.pulled = answer[0] if isinstance(answer, list) and answer else None
        self._are_settings_known = True
        self._read_settings()

    def open(self, item: types.TextDocumentItem, notebook: Notebook | None = None) -> None:
        """Adds a document that the editor opened, and starts to connect to the completion server."""
        self.close(item.uri)
        document = Document(item, self.encoding, notebook)
        session = self.sessions[item.uri] = Session(document, self._starter, self._status, self.usage)
        self._check_soon(session)
        self._prefetcher.expect(Expectation(document, _START))

    def change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Applies the edits of one notification. The user is told of edits that cannot be applied."""
        try:
            session = self._find_session(params.text_document.uri)
            session.note_edit()
            document, last_edit = session.document, session.document.last_edit
            document.apply(params.text_document.version, params.content_changes)
            if document.last_edit is not last_edit:  # an edit of an older version is ignored
                document.was_pasted = is_paste(document.last_edit, session.offers.lines)
            session.offers.follow(params.content_changes)
            self.sessions[document.uri] = self.sessions.pop(document.uri)
            self._check(document)
            end = document.find_edit_end()
            self._prefetcher.expect(None if end is None else Expectation(document, types.Range(end, end)))
        except EditorError as error:
            self._status.failed(error)

    def rest(self, uri: str, selection: types.Range) -> None:
        """To be called when the person has moved the cursor. A key would replace the selection."""
        with contextlib.suppress(EditorError):
            document = self._find_session(uri).document
            # After an edit that ended here, the key's own request follows.
            if document.last_edit is None or not document.was_edited_at(selection.end):
                self._prefetcher.expect(Expectation(document, selection), REST_S)

    def note_save(self) -> None:
        """To be called after a document was saved."""
        self._prefetcher.expect_again()

    def lose_text(self, uri: str | None) -> None:
        """To be called for an edit that cannot be read. Without a URI it may concern any document."""
        if uri is not None and uri not in self.sessions:  # the message was to open it
            self.open(types.TextDocumentItem(uri, "", 0, ""))
        for session in list(self.sessions.values()) if uri is None else [self.sessions[uri]]:
            session.note_edit()
            try:
                session.document.lose_text("the editor sent an edit that cannot be read")
            except OutOfStepError as error:
                self._status.failed(error)
            self._check(session.document)

    def close(self, uri: str) -> None:
        """Removes a document and cancels its generation. Does nothing if the document is not open."""
        session = self.sessions.pop(uri, None)
        if session is not None:
            self._prefetcher.forget(session.document)
            self._related.forget(uri)
            self._guard.forget(session.document.file_uri)
            self._status.forget(uri)
            session.close()

    def note_quiet(self) -> None:
        """To be called after `quiet` was changed by a command."""
        for session in self.sessions.values():
            session.supersede()
            self._check_soon(session)
        self._prefetcher.expect_again()

    async def suggest(self, uri: str, position: types.Position, is_invoked: bool = False) -> Suggestion | NoSuggestion:
        """Returns what to suggest at a position, or why there is nothing. The user has been told of a failure.

        `is_invoked`: a person asked for it, so it may be up to three suggestions.
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
            self.usage.write()
            self._guard.close()
            await self._starter.close()

    async def settle(self) -> None:
        """Waits until what the last message has started is under way, and until a shutdown is answered.

        A request must see the text before edits that came after it, and `exit` may follow `shutdown` at once.
        """
        await asyncio.sleep(0)  # tasks begin
        async with self._closing:
            await asyncio.sleep(0)  # a shutdown that is done is answered

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
        self._prefetcher.expect(None)
        found = await self._find_reason_now(session)
        if found is not None:
            return found
        document = session.document
        place = document.find_place(position)
        context = cut_context(document, place.position, self.settings)
        if not is_invoked:
            found = SNOOZED if self.quiet.minutes_left else find_disturbance(document, place, context)
            if found is not None:
                return found
        build_request = partial(self._build_request, session, document, place, context)
        confidence = 0.0 if is_invoked else self.settings.confidence
        question = Question(context.prefix, context.suffix, self.settings, confidence, build_request)
        answer = await session.complete(question)
        if isinstance(answer, NoSuggestion):
            return answer
        others = await session.draw_alternatives(question) if is_invoked else []
        if isinstance(others, NoSuggestion):
            return others
        insertions = fit_all([answer, *others], context)[:_MAX_ITEMS]
        self._expect_taken(document, place, insertions[0] if insertions else Insertion(""))
        if not insertions:
            return NoSuggestion(Reason.FILTERED if answer.strip() else Reason.NOTHING)
        session.offers.show(place, insertions)
        return Suggestion(place, context, insertions)

    async def _connect(self, connect: BackendFactory, on_download: OnDownload) -> CompletionBackend:
        backend = await connect(self.settings.model, on_download)
        self._languages = backend.languages or self._find_named_languages()
        for session in self.sessions.values():
            self._check(session.document)
        self._prefetcher.expect_again()
        return backend

    def _find_named_languages(self) -> tuple[str, ...] | None:
        return self._default_languages if self.settings.model is None else None

    def _expect_taken(self, document: Document, place: Place, insertion: Insertion) -> None:
        start = place.position
        end = types.Position(start.line, start.character + num_units(insertion.replaced_after, place.encoding))
        self._prefetcher.expect(Expectation(document, types.Range(start, end), insertion.text))

    async def _prefetch(self, expected: Expectation) -> None:
        """Has the server read what the next key will send, by the rules for keys."""
        document = expected.document
        is_saving = self.quiet.minutes_left or self._battery.is_below(self.settings.prefetch_min_battery)
        if is_saving or not self.settings.prefetch:
            return
        self._configure_guard()
        await self._guard.wait_until_known(_list_languages([document]))
        cut_context(document, expected.span.start, self.settings, is_waited_for=False)  # the window moves
        imagined, position = document.imagine(expected.span, expected.text)
        place = imagined.find_place(position)
        context = cut_context(imagined, place.position, self.settings)
        request = await self._build_request(self.sessions[document.uri], imagined, place, context, expected=expected)
        if isinstance(request, NoSuggestion):
            return
        backend = await self._starter.get()
        if backend is not None:
            async with aclosing(backend.stream(request)) as chunks:
                async for _ in chunks:
                    pass

    def _check_soon(self, session: Session) -> None:
        """Begins to look at the rules for a document. When they are known, the user is told what has changed."""
        if session.checking is None or session.checking.done():
            session.checking = asyncio.create_task(self._check_now(session.document))

    async def _check_now(self, document: Document) -> None:
        self._configure_guard()
        await self._guard.wait_until_known(_list_languages([document]))
        if self._check(document) is None:
            self._starter.start()

    async def _find_reason_now(self, session: Session) -> NoSuggestion | None:
        """Returns why a document has no suggestions, by the rules of the last second."""
        session.supersede()
        document, number = session.document, session.num_requests
        self._configure_guard()
        await self._guard.ask(_list_languages([document]))
        if number != session.num_requests:
            return SUPERSEDED
        found = self._check(document)
        if found is not None and found.reason is Reason.UNKNOWN_RULES:
            self._status.checked(document.uri, found)
            self._check_soon(session)
        return found

    def _check(self, document: Document) -> NoSuggestion | None:
        """Returns why a document has no suggestions, None if it has, and tells the user if that has changed."""
        found = self._find_reason(document)
        if found is None or found.reason is not Reason.UNKNOWN_RULES:
            self._status.checked(document.uri, found)
        return found

    def _find_reason(self, document: Document) -> NoSuggestion | None:
        exclusion = self._guard.find_exclusion(document.file_uri)
        found = find_document_reason(document, self.settings, self._languages, exclusion)
        if found is not None and found.reason is Reason.EXCLUDED and not self._guard.is_known(document.file_uri):
            return NoSuggestion(Reason.UNKNOWN_RULES, found.message)
        return found or self.quiet.find_reason(list_scopes(document, self.workspace.folders))

    def _configure_guard(self) -> None:
        """To be called before each question, since the folders of the workspace may change at any time."""
        if self._are_settings_known:
            self._guard.configure(self.settings, list(self.workspace.folders), self._refusal)

    def _read_settings(self) -> None:
        read, model = self._settings_sources.read(), self.settings.model
        self.settings, self._refusal = read.settings, read.refusal
        if self.settings.model != model:
            self._languages = self._find_named_languages()
            self._starter.restart()
        self._related.max_bytes = self.settings.max_related_bytes
        self.usage.is_on = self.settings.stats
        self._status.configured(read.problems)
        self._configure_guard()
        for session in self.sessions.values():
            self._check_soon(session)

    async def _build_request(
        self,
        session: Session,
        document: Document,
        place: Place,
        context: Context,
        change: Change = lambda request: request,
        expected: Expectation | None = None,  # None: a key has come
    ) -> Cleared[CompletionRequest] | NoSuggestion:
        """Returns what to send for a place, by the rules of this moment, or why nothing may be sent."""
        number = session.num_requests
        newest_first = [each.document for each in reversed(self.sessions.values())]
        others = [each for each in newest_first if each.language_id == document.language_id][:_MAX_OTHERS]
        await self._guard.ask_about_others(_list_languages(others))
        if number != session.num_requests:
            return SUPERSEDED
        found = self._check(document)
        if found is not None:
            return found
        others = [each for each in others if self._find_reason(each) is None]
        try:
            sent = cut_excerpt(document, place.position, context).redact(self._guard.redactor)
            sent = write_blanks(sent, document.language_id)
            request = CompletionRequest(
                prefix=self._related.add(sent, document, others, expected is not None and expected.is_imagined),
                suffix=sent.suffix,
                max_tokens=self.settings.max_tokens,
                healing=self.settings.healing,
                extent=self.settings.extent,
                deadline_ms=self.settings.deadline_ms,
                chunks=Chunks.LINES,
                tenant=self._tenant,
                document=session.document_id,
                priority=Priority.PREFETCH if expected else Priority.INTERACTIVE,
            )
            return self._guard.clear(change(request), _list_languages([document, *others]))
        except NotSentError as error:
            return to_no_suggestion(error)


def _list_languages(documents: list[Document]) -> dict[str, str]:
    return {document.file_uri: document.language_id for document in documents}


def find_version(package: str) -> str | None:
    """Returns the version of an installed package."""
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    return None
