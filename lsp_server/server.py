"""Translates between LSP and the `Assistant`: messages become calls, and answers become results."""

import asyncio
import contextlib
import gc
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import FeatureRequestError, JsonRpcException
from pygls.io_ import StdoutWriter, run_async
from pygls.lsp.server import LanguageServer

from inference.errors import describe_failure
from inference.platforms import call_at_signals
from lsp_server.assistant import Assistant
from lsp_server.backend import Connect
from lsp_server.documents import Client, Document, Notebook
from lsp_server.errors import to_midtoken_error
from lsp_server.exclusion import Policy
from lsp_server.guard import Guard
from lsp_server.items import completion_item, extend_selected, inline_item
from lsp_server.model_offer import OfferedModel
from lsp_server.no_suggestion import HIDING_REASONS, NoSuggestion
from lsp_server.protocol import MessageReader, MidtokenProtocol, build_converter
from lsp_server.settings import SECTION, SettingsSources
from lsp_server.status import Status

_NOTEBOOKS = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")])

# After these characters, a client without inline completion requests a completion. After letters it always does.
_TRIGGER_CHARACTERS: Sequence[str] = tuple(" .,:;=+-*/<>([{\"'@")

# Implementation-dependent (LSP, "$ Notifications"): servers that do not know it ignore it.
CURSOR_NOTIFICATION = "$/midtoken/cursor"


class MidtokenServer(LanguageServer):
    """The language server. It offers each editor one of its two features: ghost text or completion menu."""

    protocol: MidtokenProtocol

    def __init__(
        self,
        connect: Connect,
        languages: tuple[str, ...] | None = None,
        policy: Policy | None = None,
        is_remote: bool = False,
        offered: OfferedModel | None = None,
    ) -> None:
        """It calls `connect` when the first document is opened, and again after the connection is lost.

        `languages`: the identifiers of the languages that the bundled model knows (LSP, TextDocumentItem); None: any,
        or another model is served. After connecting, the languages that the completion server reports apply instead.
        `policy` says which documents are excluded; by default one that knows no environment. `is_remote`: text may go
        to another machine, so its secrets are replaced. `offered`: the model that the user may have for other
        languages; None where the command line names a model or server.
        """
        super().__init__(
            "midtoken",
            version("midtoken"),
            protocol_cls=MidtokenProtocol,
            converter_factory=build_converter,
            notebook_document_sync=_NOTEBOOKS,
        )
        self.configuration_wait_s = 1.0  # for an answer to workspace/configuration
        self._client = Client()
        self._status = Status(self, is_remote)
        guard = Guard(policy, is_remote=is_remote)
        self.assistant = Assistant(connect, languages, guard, self.list_folders, self._status, offered)
        self.protocol.mark_out_of_sync = self.assistant.mark_out_of_sync
        self._settings_sources = SettingsSources()
        self._num_pulls = 0  # of the settings
        self._unanswered: str | None = None  # why they are not known
        self._notebooks: dict[str, Notebook] = {}  # by URI
        handlers: dict[str, Callable[[Any], Any]] = {
            types.INITIALIZE: self.initialize,
            types.INITIALIZED: self._start,
            types.SHUTDOWN: self._shut_down,
            types.TEXT_DOCUMENT_DID_OPEN: lambda params: self.open(params.text_document),
            types.TEXT_DOCUMENT_DID_CHANGE: lambda edit: self.assistant.edit(
                edit.text_document.uri, edit.content_changes
            ),
            types.TEXT_DOCUMENT_DID_CLOSE: lambda params: self.assistant.close(params.text_document.uri),
            types.NOTEBOOK_DOCUMENT_DID_OPEN: self._open_notebook,
            types.NOTEBOOK_DOCUMENT_DID_CHANGE: self._change_notebook,
            types.NOTEBOOK_DOCUMENT_DID_CLOSE: self._close_notebook,
            types.WORKSPACE_DID_CHANGE_CONFIGURATION: self._change_configuration,
            types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: lambda _: self.assistant.configure_guard(),
            CURSOR_NOTIFICATION: self._note_cursor,
        }
        for method, handle in handlers.items():
            self._add(method, handle)

    def initialize(self, params: types.InitializeParams) -> None:
        """Sets what the editor is and can, and the first settings."""
        self._client = Client.from_name(params.client_info.name if params.client_info else "")
        self._settings_sources.initialization_options = params.initialization_options
        self._read_settings(are_known=False)
        if get_capability(params.capabilities, "text_document.inline_completion") is not None:
            # Without the options object pygls does not announce the capability.
            self._add(types.TEXT_DOCUMENT_INLINE_COMPLETION, self._complete_inline, types.InlineCompletionOptions())
        else:  # the others would show each suggestion twice
            options = types.CompletionOptions(trigger_characters=_TRIGGER_CHARACTERS)
            self._add(types.TEXT_DOCUMENT_COMPLETION, self._complete, options)

    def list_folders(self) -> Sequence[str]:
        """Returns the URIs of the workspace's folders; the root, if the editor knows only that."""
        folders = [each.uri for each in self.workspace.folders.values()]  # the keys are not the URIs
        return folders or [each for each in [self.workspace.root_uri] if each is not None]

    def open(self, item: types.TextDocumentItem, notebook: Notebook | None = None) -> None:
        """Adds a document that the editor opened. `notebook`: the one that has it as a cell."""
        self.assistant.open(Document(item, notebook, self._client))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Shows an error once, unless the editor gets it as the reply to a request.

        pygls's own method would show a message that may contain source text.
        """
        if source is JsonRpcException:  # a message that is not JSON may have been an edit
            self._status.log(f"a message cannot be read: {describe_failure(error)}", types.MessageType.Warning)
            self.assistant.mark_out_of_sync(None)
        elif source is not FeatureRequestError:
            self._status.failed(to_midtoken_error(error))

    def _add(self, method: str, handle: Callable[[Any], Any], options: Any = None) -> None:
        self.feature(method, options)(partial(handle))  # pygls sets attributes, which a method cannot have

    async def _shut_down(self, _: None) -> None:
        await self.assistant.close_all()

    async def _change_configuration(self, params: types.DidChangeConfigurationParams) -> None:
        """The settings are any JSON, perhaps with those of other servers."""
        self._settings_sources.pushed = params.settings
        self._read_settings(are_known=False)
        await self._pull_settings()

    async def _start(self, _: types.InitializedParams) -> None:
        """Requests the editor's settings, and asks it to tell when they change if it waits for that (LSP 3.17)."""
        if get_capability(self.client_capabilities, "workspace.did_change_configuration.dynamic_registration"):
            changes = types.Registration(str(uuid.uuid4()), types.WORKSPACE_DID_CHANGE_CONFIGURATION)
            self.client_register_capability(types.RegistrationParams([changes]))
        await self._pull_settings()

    async def _pull_settings(self) -> None:
        """Requests the editor's settings until it answers, or is asked anew because they have changed.

        Before the first answer nothing is sent. An answer that does not come, or is an error, is said to be why.
        """
        self._num_pulls += 1
        number, asking = self._num_pulls, None
        while get_capability(self.client_capabilities, "workspace.configuration"):
            asking = asking or asyncio.ensure_future(self._ask_settings())
            await asyncio.wait({asking}, timeout=self.configuration_wait_s)
            if number != self._num_pulls:
                return
            if asking.done() and (answer := asking.result()) is not None:
                self._settings_sources.pulled, self._unanswered = answer[0], None
                break
            how = ", except with an error" if asking.done() else ""
            self._unanswered = f"the editor has not answered workspace/configuration{how}: its settings are not known"
            self._read_settings()
            if asking.done():
                await asyncio.sleep(self.configuration_wait_s)
                asking = None
        self._read_settings()

    async def _ask_settings(self) -> Sequence[Any] | None:
        params = types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
        with contextlib.suppress(JsonRpcException):
            return await self.workspace_configuration_async(params) or [None]
        return None

    def _read_settings(self, are_known: bool = True) -> None:
        """`are_known`: the editor was asked for them. If it has not answered, nothing may be sent whatever they say."""
        read = self._settings_sources.read()
        self.assistant.configure(replace(read, refusal=self._unanswered or read.refusal), are_known)

    def _open_notebook(self, params: types.DidOpenNotebookDocumentParams) -> None:
        uri, cells = params.notebook_document.uri, list(params.notebook_document.cells)
        notebook = self._notebooks[uri] = Notebook(uri, cells)
        for item in params.cell_text_documents:
            self.open(item, notebook)

    def _change_notebook(self, params: types.DidChangeNotebookDocumentParams) -> None:
        """Other cells, another order or kind of cells, or other text in them."""
        uri, change = params.notebook_document.uri, params.change.cells or types.NotebookDocumentCellChanges()
        notebook = self._notebooks.setdefault(uri, Notebook(uri, []))
        if change.structure is not None:
            array = change.structure.array
            notebook.cells[array.start : array.start + array.delete_count] = array.cells or []
            for closed in change.structure.did_close or []:
                self.assistant.close(closed.uri)
            for item in change.structure.did_open or []:
                self.open(item, notebook)
        changed = {cell.document: cell for cell in change.data or []}
        notebook.cells = [changed.get(cell.document, cell) for cell in notebook.cells]
        for edit in change.text_content or []:
            self.assistant.edit(edit.document.uri, edit.changes)

    def _close_notebook(self, params: types.DidCloseNotebookDocumentParams) -> None:
        """The notebook's cells are closed, whether the editor lists them or not."""
        notebook = self._notebooks.pop(params.notebook_document.uri, Notebook("", []))
        for uri in [cell.uri for cell in params.cell_text_documents] + [*notebook.documents]:
            self.assistant.close(uri)

    def _note_cursor(self, params: Any) -> None:
        """The cursor was moved. The parameters have no type in lsprotocol, hence Any."""
        start, end = (types.Position(each.line, each.character) for each in (params.range.start, params.range.end))
        self.assistant.note_cursor(params.textDocument.uri, types.Range(start, end))

    async def _complete_inline(self, params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
        """An empty list makes the editor hide the ghost text. null, for a request without an answer, does not."""
        is_invoked = params.context.trigger_kind is types.InlineCompletionTriggerKind.Invoked
        found = await self.assistant.suggest(params.text_document.uri, params.position, is_invoked)
        if isinstance(found, NoSuggestion):
            return types.InlineCompletionList([]) if found.reason in HIDING_REASONS else None
        selected = params.context.selected_completion_info
        if selected is None:
            return types.InlineCompletionList([inline_item(each, found) for each in found.insertions])
        extended = [extend_selected(each, found, selected) for each in found.insertions]
        items = [item for item in extended if item is not None]
        return types.InlineCompletionList(items) if items else None

    async def _complete(self, params: types.CompletionParams) -> types.CompletionList:
        """The list is marked as incomplete, so that the editor requests a new one after the next letter."""
        found = await self.assistant.suggest(params.text_document.uri, params.position)
        if isinstance(found, NoSuggestion):
            return types.CompletionList(is_incomplete=True, items=[])
        formats = get_capability(
            self.client_capabilities, "text_document.completion.completion_item.documentation_format"
        )
        reads_markdown = self._client.reads_markdown or types.MarkupKind.Markdown in (formats or ())
        items = [completion_item(each, found, reads_markdown) for each in found.insertions]
        return types.CompletionList(is_incomplete=True, items=items)


def serve_stdio(server: MidtokenServer) -> NoReturn:
    """Serves LSP on stdin and stdout until the editor sends `exit`, closes stdin or ends, or SIGINT or SIGTERM.

    Then it ends the process. The exit status is 0 only for `exit` after `shutdown`.
    """
    asyncio.run(_serve(server))


async def _serve(server: MidtokenServer) -> NoReturn:
    sys.setswitchinterval(0.001)  # a thread that parses rules must not hold up a key for 5 ms at each of its steps
    gc.freeze()  # what the imports have made stays; to look at it again and again would delay keys by 10 ms
    server.protocol.set_writer(StdoutWriter(sys.stdout.buffer))
    reader, protocol = MessageReader(), server.protocol
    reader.read_descriptor(sys.stdin.fileno())
    messages = run_async(protocol.has_exited, reader, protocol, error_handler=server.report_server_error)
    reading, watching = asyncio.ensure_future(messages), asyncio.ensure_future(_wait_for_end(server))
    call_at_signals(watching.cancel, "SIGINT", "SIGTERM")
    try:
        await asyncio.wait({reading, watching}, return_when=asyncio.FIRST_COMPLETED)
        await server.assistant.close_all()
    finally:  # Python would take 0.2 s more to tear everything down, and editors kill a server that is slow
        os._exit(protocol.exit_status)


async def _wait_for_end(server: MidtokenServer) -> None:
    """Returns when the editor has ended, if it has started this process and says so.

    That matters only if another process holds stdin open. A process whose parent has ended gets another one.
    """
    parent = os.getppid()
    while server.process_id != parent or os.getppid() == parent:
        await asyncio.sleep(1.0)
