"""The LSP features: maps LSP messages to calls of the server, and its answers to LSP results."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.capabilities import get_capability

from lsp_server.backend import BackendFactory
from lsp_server.items import Suggestion, completion_item, extend_selected, inline_item
from lsp_server.no_suggestion import HIDING, NoSuggestion
from lsp_server.notebooks import Notebooks
from lsp_server.privacy.exclusion import Policy
from lsp_server.protocol import build_strict_converter
from lsp_server.server import MidtokenServer

# After these characters, a client without inline completion requests a completion. After letters it always does.
_TRIGGER_CHARACTERS: Sequence[str] = tuple(" .,:;=+-*/<>([{\"'@")


def build_server(
    connect: BackendFactory,
    languages: tuple[str, ...] | None = None,
    policy: Policy | None = None,
    is_remote: bool = False,
    index_dir: Path | None = None,
) -> MidtokenServer:
    """Returns a language server. It offers each editor one of its two features: ghost text or completion menu.

    It calls `connect` when the first document is opened, and again after the connection is lost. `languages`: those
    that the model knows; None: any. `policy` says which documents are excluded; by default one that knows no
    environment. `is_remote`: text may go to another machine, so its secrets are replaced. `index_dir`: where
    indexes of the workspace's folders are kept; None: no files are read.
    """
    server = MidtokenServer(connect, languages, policy, is_remote, index_dir)
    _add_lifecycle(server)
    _add_text_synchronization(server)
    _add_cursor_moved(server)
    return server


def _add_lifecycle(server: MidtokenServer) -> None:
    @server.feature(types.INITIALIZE)
    def _initialize(params: types.InitializeParams) -> None:
        server.initialize(params)
        if _draws_ghost_text(params.capabilities):
            _add_inline_completion(server)
        else:
            _add_completion_menu(server, _reads_markdown(params))

    @server.feature(types.INITIALIZED)
    async def _initialized(_: types.InitializedParams) -> None:
        await server.pull_settings()
        await server.watch_files()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def _change_configuration(params: types.DidChangeConfigurationParams) -> None:
        server.push_settings(params.settings)
        await server.pull_settings()

    @server.feature(types.SHUTDOWN)
    async def _shutdown(_: None) -> None:
        await server.close_all()


def _add_text_synchronization(server: MidtokenServer) -> None:
    notebooks, assistant = Notebooks(server), server.assistant
    handlers: dict[str, Callable[[Any], None]] = {
        types.TEXT_DOCUMENT_DID_OPEN: lambda params: server.open(params.text_document),
        types.TEXT_DOCUMENT_DID_CHANGE: lambda params: server.change(params),
        types.TEXT_DOCUMENT_DID_SAVE: lambda params: assistant.note_save(params.text_document.uri),
        types.TEXT_DOCUMENT_DID_CLOSE: lambda params: assistant.close(params.text_document.uri),
        types.NOTEBOOK_DOCUMENT_DID_OPEN: lambda params: notebooks.open(params),
        types.NOTEBOOK_DOCUMENT_DID_CHANGE: lambda params: notebooks.change(params),
        types.NOTEBOOK_DOCUMENT_DID_SAVE: lambda params: assistant.note_save(params.notebook_document.uri),
        types.NOTEBOOK_DOCUMENT_DID_CLOSE: lambda params: notebooks.close(params),
        types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: lambda _: assistant.read_folders(),
        types.WORKSPACE_DID_CHANGE_WATCHED_FILES: lambda params: assistant.project.note_changed(
            [each.uri for each in params.changes]
        ),
    }
    for method, handle in handlers.items():
        server.feature(method)(handle)


def _add_inline_completion(server: MidtokenServer) -> None:
    """For clients that say that they have it."""

    # Without the options object pygls does not announce the capability.
    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def _inline_completion(params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
        is_invoked = params.context.trigger_kind is types.InlineCompletionTriggerKind.Invoked
        found = await server.suggest(params.text_document.uri, params.position, is_invoked)
        if isinstance(found, NoSuggestion):
            return types.InlineCompletionList([]) if found.reason in HIDING else None
        return _to_inline_list(found, params.context.selected_completion_info)


def _add_completion_menu(server: MidtokenServer, reads_markdown: bool) -> None:
    """For clients without inline completion. The others would show each suggestion twice."""
    options = types.CompletionOptions(trigger_characters=_TRIGGER_CHARACTERS)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, options)
    async def _completion(params: types.CompletionParams) -> types.CompletionList:
        return _to_menu(await server.suggest(params.text_document.uri, params.position), reads_markdown)


def _to_inline_list(
    suggestion: Suggestion, selected: types.SelectedCompletionInfo | None
) -> types.InlineCompletionList | None:
    """An empty list makes the editor hide the ghost text. null, for a request without an answer, does not."""
    context, place = suggestion.context, suggestion.place
    if selected is None:
        items = [inline_item(insertion, context, place) for insertion in suggestion.insertions]
    else:
        extended = (extend_selected(insertion, context, place, selected) for insertion in suggestion.insertions)
        items = [item for item in extended if item is not None]
        if not items:
            return None
    return types.InlineCompletionList(items)


def _to_menu(found: Suggestion | NoSuggestion, reads_markdown: bool) -> types.CompletionList:
    """Marks the list as incomplete, so that the editor requests a new one after the next letter."""
    if isinstance(found, NoSuggestion):
        return types.CompletionList(is_incomplete=True, items=[])
    items = [completion_item(each, found.context, found.place, reads_markdown) for each in found.insertions]
    return types.CompletionList(is_incomplete=True, items=items)


def _draws_ghost_text(capabilities: types.ClientCapabilities) -> bool:
    document = capabilities.text_document
    return document is not None and document.inline_completion is not None


def _reads_markdown(params: types.InitializeParams) -> bool:
    """Helix does not say so, and takes all text for Markdown."""
    field = "text_document.completion.completion_item.documentation_format"
    is_helix = params.client_info is not None and params.client_info.name == "helix"
    return is_helix or types.MarkupKind.Markdown in (get_capability(params.capabilities, field) or ())


# Implementation-dependent (LSP, "$ Notifications"): servers that do not know it ignore it.
CURSOR_NOTIFICATION = "$/midtoken/cursor"


def _add_cursor_moved(server: MidtokenServer) -> None:
    """The notification that the cursor was moved. Its parameters have no type in lsprotocol, hence Any."""

    @server.feature(CURSOR_NOTIFICATION)
    def _cursor_moved(params: Any) -> None:
        with contextlib.suppress(Exception):  # cattrs and its hooks raise many kinds
            place = build_strict_converter().structure(params, types.InlayHintParams)  # a document and a range
            server.assistant.note_cursor(place.text_document.uri, place.range)
