"""The language server: what each LSP message means, in terms of the other modules."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from threading import Event
from typing import Any

from lsprotocol import types
from pygls.io_ import StdinAsyncReader, StdoutWriter, run_async
from pygls.lsp.server import LanguageServer

from inference.errors import MidtokenError
from inference.protocol.completion import CompletionRequest
from lsp_server.backend import BackendStarter, Connect
from lsp_server.context import Context, cut_context
from lsp_server.documents import Documents
from lsp_server.errors import EditorError, UnexpectedError
from lsp_server.items import Insertion, completion_item, fit, inline_item
from lsp_server.protocol import OwnTextProtocol, keep_text_out_of_logs
from lsp_server.session import Session
from lsp_server.settings import SECTION, Settings, read_settings
from lsp_server.status import Status
from lsp_server.window import LspWindow

# Characters after which a client without inline completion asks unasked; after letters it does anyway.
_TRIGGER_CHARACTERS: Sequence[str] = tuple(" .,:;=+-*/<>([{\"'@")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to insert at a cursor; nothing where there is nothing to suggest."""

    context: Context
    insertion: Insertion | None


class MidtokenServer(LanguageServer):
    """The state behind the features: the documents, a session for each, the settings and the one backend."""

    def __init__(self, connect: Connect) -> None:
        super().__init__("midtoken", _find_version(), protocol_cls=OwnTextProtocol)
        self.settings = Settings()
        self.documents = Documents(types.PositionEncodingKind.Utf16)
        self.status = Status(LspWindow(self))
        self._starter = BackendStarter(connect, self.status)
        self._sessions: dict[str, Session] = {}
        _add_features(self)

    def configure(self, values: Any) -> None:
        """Takes settings as the editor sent them (hence Any) and tells the person of bad ones."""
        read = read_settings(values, self.settings)
        self.settings = read.settings
        for problem in read.problems:
            self.status.misconfigured(problem)

    async def pull_settings(self) -> None:
        """Asks the editor for its settings, where it can be asked."""
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.configuration:
            item = types.ConfigurationItem(section=SECTION)
            self.configure((await self.workspace_configuration_async(types.ConfigurationParams([item])))[0])

    def open(self, item: types.TextDocumentItem) -> None:
        """A document is shown; the completion server is started meanwhile."""
        self.close(item.uri)
        self.documents.open(item)
        self._sessions[item.uri] = Session(self._starter, self.status)
        if self.settings.enabled:
            self._starter.start()

    def change(self, params: types.DidChangeTextDocumentParams) -> None:
        """A document was edited; of edits that make no sense the person is told."""
        try:
            document = self.documents.get(params.text_document.uri)
            document.apply(params.text_document.version, params.content_changes)
        except EditorError as error:
            self.status.failed(error)

    def close(self, uri: str) -> None:
        """A document is no longer shown."""
        self.documents.close(uri)
        if uri in self._sessions:
            self._sessions.pop(uri).close()

    async def suggest(self, uri: str, position: types.Position) -> Suggestion | None:
        """What to suggest at a position, or None where the request has no answer: a newer one took its place,
        there is no completion server yet, suggestions are off, or it failed and the person was told.
        """
        if not self.settings.enabled:
            return None
        try:
            context = cut_context(self.documents.get(uri), position, self.settings)
            text = await self._sessions[uri].complete(self._build_request(context))
            return None if text is None else Suggestion(context, fit(text, context))
        except Exception as error:  # the rim: a defect costs this answer only
            self.report_server_error(error, type(error))
            return None

    async def close_all(self) -> None:
        """Cancels what runs and ends the connection to the completion server."""
        for uri in list(self._sessions):
            self.close(uri)
        await self._starter.close()

    def report_server_error(self, error: Exception, source: Any) -> None:  # noqa: ARG002 (pygls's signature)
        """Shows an error once. pygls would show its message, which may hold the person's text."""
        self.status.failed(error if isinstance(error, MidtokenError) else UnexpectedError(error))

    def _build_request(self, context: Context) -> CompletionRequest:
        return CompletionRequest(
            prefix=context.prefix,
            suffix=context.suffix,
            max_tokens=self.settings.max_tokens,
            healing=self.settings.healing,
            extent=self.settings.extent,
            deadline_ms=self.settings.deadline_ms,
        )


def serve_stdio(connect: Connect) -> int:
    """Speaks LSP on stdin and stdout until the editor ends it or goes away; gives the process's exit status.

    `connect` is called when the first document is opened, and again after its server was lost.
    """
    keep_text_out_of_logs()
    return asyncio.run(_serve(MidtokenServer(connect)))


async def _serve(server: MidtokenServer) -> int:
    server.protocol.set_writer(StdoutWriter(sys.stdout.buffer))
    reader = StdinAsyncReader(sys.stdin.buffer, server.thread_pool)
    try:
        await run_async(Event(), reader, server.protocol, error_handler=server.report_server_error)
    except SystemExit as leaving:  # how pygls carries `exit` out of its loop: 0 after `shutdown`, else 1
        return int(leaving.code or 0)
    finally:
        await server.close_all()
    return 1  # the editor went away without a word


def _add_features(server: MidtokenServer) -> None:
    @server.feature(types.INITIALIZE)
    def _initialize(params: types.InitializeParams) -> None:
        server.documents = Documents(types.PositionEncodingKind(server.workspace.position_encoding))
        server.configure(params.initialization_options)
        if not _draws_ghost_text(params.capabilities):
            _add_completion_menu(server)

    @server.feature(types.INITIALIZED)
    async def _initialized(_: types.InitializedParams) -> None:
        await server.pull_settings()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def _configure(params: types.DidChangeConfigurationParams) -> None:
        server.configure(params.settings)
        await server.pull_settings()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def _open(params: types.DidOpenTextDocumentParams) -> None:
        server.open(params.text_document)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def _change(params: types.DidChangeTextDocumentParams) -> None:
        server.change(params)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def _close(params: types.DidCloseTextDocumentParams) -> None:
        server.close(params.text_document.uri)

    # Without the options object pygls does not announce the capability, and says nothing.
    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def _inline_completion(params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
        suggestion = await server.suggest(params.text_document.uri, params.position)
        return _to_inline_list(suggestion, params.position, server.documents.encoding)

    @server.feature(types.SHUTDOWN)
    async def _shutdown(_: None) -> None:
        await server.close_all()


def _add_completion_menu(server: MidtokenServer) -> None:
    """For clients that cannot draw ghost text; the others would show each suggestion twice."""
    options = types.CompletionOptions(trigger_characters=_TRIGGER_CHARACTERS)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, options)
    async def _completion(params: types.CompletionParams) -> types.CompletionList:
        suggestion = await server.suggest(params.text_document.uri, params.position)
        return _to_menu(suggestion, params.position, server.documents.encoding)


def _to_inline_list(
    suggestion: Suggestion | None, position: types.Position, encoding: types.PositionEncodingKind
) -> types.InlineCompletionList | None:
    """No items hide what an editor draws; null, for a request without an answer, leaves it."""
    if suggestion is None:
        return None
    if suggestion.insertion is None:
        return types.InlineCompletionList([])
    return types.InlineCompletionList([inline_item(suggestion.insertion, suggestion.context, position, encoding)])


def _to_menu(
    suggestion: Suggestion | None, position: types.Position, encoding: types.PositionEncodingKind
) -> types.CompletionList:
    """The list is never complete: after another letter the editor is to ask again."""
    if suggestion is None or suggestion.insertion is None:
        return types.CompletionList(is_incomplete=True, items=[])
    item = completion_item(suggestion.insertion, suggestion.context, position, encoding)
    return types.CompletionList(is_incomplete=True, items=[item])


def _draws_ghost_text(capabilities: types.ClientCapabilities) -> bool:
    document = capabilities.text_document
    return document is not None and document.inline_completion is not None


def _find_version() -> str:
    try:
        return version("midtoken")
    except PackageNotFoundError:  # run from a checkout
        return "0"
