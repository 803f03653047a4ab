"""Translates between LSP and the `Assistant`: positions, line ends, settings and files of the workspace."""

import asyncio
import contextlib
import os
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import FeatureRequestError, JsonRpcException

from lsp_server.assistant import Assistant
from lsp_server.backend import BackendFactory
from lsp_server.documents import Document, Notebook
from lsp_server.errors import to_midtoken_error
from lsp_server.items import Suggestion
from lsp_server.line_ends import LineEnds, find_line_ends
from lsp_server.no_suggestion import NoSuggestion
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from lsp_server.project.grammar import BY_EXTENSION
from lsp_server.protocol import MidtokenProtocol, TextServer, build_strict_converter
from lsp_server.settings import SECTION, SettingsSources
from lsp_server.status import Status

_NOTEBOOKS = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")], save=True)


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
        self.line_ends = LineEnds.UNKNOWN
        self.configuration_wait_s = 5.0  # for an answer to workspace/configuration
        self._writes_lf = False
        self._status = Status(self)
        guard = Guard(policy, is_remote=is_remote)
        self.assistant = Assistant(connect, languages, guard, index_dir, lambda: self.workspace.folders, self._status)
        self._closing = asyncio.Lock()
        self._settings_sources = SettingsSources()
        self._are_settings_known = False

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

    def mark_out_of_sync(self, uri: str | None) -> None:
        """See `Assistant.mark_out_of_sync`."""
        self.assistant.mark_out_of_sync(uri)

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
