"""The LSP features: maps LSP messages to calls of the server, and its answers to LSP results."""

from collections.abc import Sequence

from lsprotocol import types

from lsp_server.backend import BackendFactory
from lsp_server.items import completion_item, inline_item
from lsp_server.server import MidtokenServer, Suggestion

# After these characters, a client without inline completion requests a completion. After letters it always does.
_TRIGGER_CHARACTERS: Sequence[str] = tuple(" .,:;=+-*/<>([{\"'@")


def build_server(connect: BackendFactory) -> MidtokenServer:
    """Returns a language server with all features.

    It calls `connect` when the first document is opened, and again after the connection is lost.
    """
    server = MidtokenServer(connect)
    _add_lifecycle(server)
    _add_text_synchronization(server)
    _add_inline_completion(server)
    return server


def _add_lifecycle(server: MidtokenServer) -> None:
    @server.feature(types.INITIALIZE)
    def _initialize(params: types.InitializeParams) -> None:
        server.initialize(params.initialization_options)
        if not _draws_ghost_text(params.capabilities):
            _add_completion_menu(server)

    @server.feature(types.INITIALIZED)
    async def _initialized(_: types.InitializedParams) -> None:
        await server.pull_settings()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def _change_configuration(params: types.DidChangeConfigurationParams) -> None:
        server.push_settings(params.settings)
        await server.pull_settings()

    @server.feature(types.SHUTDOWN)
    async def _shutdown(_: None) -> None:
        await server.close_all()


def _add_text_synchronization(server: MidtokenServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def _open(params: types.DidOpenTextDocumentParams) -> None:
        server.open(params.text_document)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def _change(params: types.DidChangeTextDocumentParams) -> None:
        server.change(params)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def _close(params: types.DidCloseTextDocumentParams) -> None:
        server.close(params.text_document.uri)


def _add_inline_completion(server: MidtokenServer) -> None:
    # Without the options object pygls does not announce the capability.
    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def _inline_completion(params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
        suggestion = await server.suggest(params.text_document.uri, params.position)
        return _to_inline_list(suggestion, params.position, server.documents.encoding)


def _add_completion_menu(server: MidtokenServer) -> None:
    """Only for clients without inline completion, because the others would show each suggestion twice."""
    options = types.CompletionOptions(trigger_characters=_TRIGGER_CHARACTERS)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, options)
    async def _completion(params: types.CompletionParams) -> types.CompletionList:
        suggestion = await server.suggest(params.text_document.uri, params.position)
        return _to_menu(suggestion, params.position, server.documents.encoding)


def _to_inline_list(
    suggestion: Suggestion | None, position: types.Position, encoding: types.PositionEncodingKind
) -> types.InlineCompletionList | None:
    """An empty list makes the editor hide the ghost text. null, for a request without an answer, does not."""
    if suggestion is None:
        return None
    if suggestion.insertion is None:
        return types.InlineCompletionList([])
    return types.InlineCompletionList([inline_item(suggestion.insertion, suggestion.context, position, encoding)])


def _to_menu(
    suggestion: Suggestion | None, position: types.Position, encoding: types.PositionEncodingKind
) -> types.CompletionList:
    """Marks the list as incomplete, so that the editor requests a new one after the next letter."""
    if suggestion is None or suggestion.insertion is None:
        return types.CompletionList(is_incomplete=True, items=[])
    item = completion_item(suggestion.insertion, suggestion.context, position, encoding)
    return types.CompletionList(is_incomplete=True, items=[item])


def _draws_ghost_text(capabilities: types.ClientCapabilities) -> bool:
    document = capabilities.text_document
    return document is not None and document.inline_completion is not None
