"""Translates between LSP and the `Assistant`: messages become calls, and answers become results."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import FeatureRequestError, JsonRpcException
from pygls.lsp.server import LanguageServer

from lsp_server.assistant import Assistant
from lsp_server.backend import BackendFactory
from lsp_server.documents import Document, Notebook
from lsp_server.errors import to_midtoken_error
from lsp_server.items import Suggestion, completion_item, extend_selected, inline_item
from lsp_server.line_ends import LineEnds, find_line_ends
from lsp_server.no_suggestion import HIDING, NoSuggestion
from lsp_server.notebooks import Notebooks
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from lsp_server.project.grammar import BY_EXTENSION
from lsp_server.protocol import MidtokenProtocol, build_strict_converter
from lsp_server.settings import SECTION, SettingsSources
from lsp_server.status import Status

_NOTEBOOKS = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")], save=True)

# After these characters, a client without inline completion requests a completion. After letters it always does.
_TRIGGER_CHARACTERS: Sequence[str] = tuple(" .,:;=+-*/<>([{\"'@")

# Implementation-dependent (LSP, "$ Notifications"): servers that do not know it ignore it.
CURSOR_NOTIFICATION = "$/midtoken/cursor"


class MidtokenServer(LanguageServer):
    """The language server. It offers each editor one of its two features: ghost text or completion menu."""

    protocol: MidtokenProtocol

    def __init__(
        self,
        connect: BackendFactory,
        languages: tuple[str, ...] | None = None,
        policy: Policy | None = None,
        is_remote: bool = False,
        index_dir: Path | None = None,
    ) -> None:
        """It calls `connect` when the first document is opened, and again after the connection is lost.

        `languages`: the identifiers of the languages that the model knows (LSP, TextDocumentItem); None: any. After
        connecting, the languages that the completion server reports apply instead. `policy` says which documents are
        excluded; by default one that knows no environment. `is_remote`: text may go to another machine, so its secrets
        are replaced. `index_dir`: where indexes of the workspace's folders are kept; None: no files are read.
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
        self.line_ends = LineEnds.UNKNOWN
        self.configuration_wait_s = 5.0  # for an answer to workspace/configuration
        self._writes_lf = False
        self._status = Status(self)
        guard = Guard(policy, is_remote=is_remote)
        self.assistant = Assistant(connect, languages, guard, index_dir, lambda: self.workspace.folders, self._status)
        self.protocol.mark_out_of_sync = self.assistant.mark_out_of_sync
        self._closing = asyncio.Lock()
        self._settings_sources = SettingsSources()
        self._are_settings_known = False
        _add_lifecycle(self)
        _add_text_synchronization(self)
        _add_cursor_moved(self)

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
        """Adds a document that the editor opened. `notebook`: the one that has it as a cell."""
        self.assistant.open(Document(item, self.encoding, notebook, self.line_ends))

    def change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Applies the edits of one notification."""
        self.assistant.edit(params.text_document.uri, params.text_document.version, params.content_changes)

    async def suggest(self, uri: str, position: types.Position, is_invoked: bool = False) -> Suggestion | NoSuggestion:
        """See `Assistant.suggest`. The line ends are those that the editor inserts."""
        found = await self.assistant.suggest(uri, position, is_invoked)
        if isinstance(found, Suggestion) and self._writes_lf:
            return replace(found, place=replace(found.place, line_end="\n"))
        return found

    async def close_all(self) -> None:
        """Cancels all generations and closes the connection to the completion server."""
        async with self._closing:
            await self.assistant.close_all()

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

    def _know_settings(self) -> None:
        self._are_settings_known = True
        self._read_settings()

    def _read_settings(self) -> None:
        self.assistant.configure(self._settings_sources.read(), self._are_settings_known)


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
    assistant, notebooks = server.assistant, Notebooks(server.assistant, server.open)
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


def _add_cursor_moved(server: MidtokenServer) -> None:
    """The notification that the cursor was moved. Its parameters have no type in lsprotocol, hence Any."""

    @server.feature(CURSOR_NOTIFICATION)
    def _cursor_moved(params: Any) -> None:
        with contextlib.suppress(Exception):  # cattrs and its hooks raise many kinds
            place = build_strict_converter().structure(params, types.InlayHintParams)  # a document and a range
            server.assistant.note_cursor(place.text_document.uri, place.range)
