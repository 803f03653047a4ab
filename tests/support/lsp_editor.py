"""An editor that is only an LSP client, and a language server with a scripted model to connect it to."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from inference.platforms import IMPORT_ROOT
from lsp_server.server import CURSOR_NOTIFICATION
from lsp_server.status import STATUS_NOTIFICATION

URI = "file:///project/file.py"


@dataclass(frozen=True, slots=True)
class Script:
    """How to start a language server whose model answers by rules."""

    command: Sequence[str]  # starts it on stdio
    folder: Path  # in this folder
    log: Path

    @property
    def events(self) -> list[dict[str, str]]:
        """The events at the model so far: objects with `event`, `prefix` and `suffix`."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    @property
    def last_prefetch(self) -> tuple[str, str] | None:
        """The text around the cursor that was sent last before a key asked for it."""
        sent = [(entry["prefix"], entry["suffix"]) for entry in self.events if entry["event"] == "prefetched"]
        return sent[-1] if sent else None

    def count(self, event: str, prefix: str = "") -> int:
        """Returns how often an event occurred, with a prefix that ends so: started, finished, cancelled, closed."""
        return sum(each["event"] == event and each.get("prefix", "").endswith(prefix) for each in self.events)


def make_script(folder: Path, *rules: dict[str, Any], **options: Any) -> Script:
    """Writes rules and options of `tests.support.scripted_server` to a file."""
    path, log = folder / "script.json", folder / "model.log"
    path.write_text(json.dumps({"rules": rules, "log": str(log), **options}))
    return Script((sys.executable, "-m", "tests.support.scripted_server", str(path)), IMPORT_ROOT, log)


class LspEditor:
    """An editor with one document, connected to a language server."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.capabilities = types.ServerCapabilities()
        self.shown: list[str] = []  # window/showMessage
        self.logged: list[str] = []  # window/logMessage
        self.progress: list[Any] = []  # the values of $/progress
        self.progress_tokens: list[types.ProgressToken] = []
        self.refuses_progress = False
        self.settings: Any = None  # the section "midtoken" of its configuration
        self.answer_configuration: Callable[[], Any] = lambda: [self.settings]
        self.num_configuration_requests = 0
        self.reports: list[Any] = []  # the parameters of $/midtoken/status
        self.uri = URI  # of the document
        self.language_id = "python"
        self._version = 0
        self._listen()

    async def start(
        self, capabilities: types.ClientCapabilities, options: Any = None, name: str = "editor", *folders: Path
    ) -> None:
        """Sends initialize and initialized. `folders`: those of the workspace."""
        params = types.InitializeParams(
            capabilities,
            initialization_options=options,
            client_info=types.ClientInfo(name),
            workspace_folders=[types.WorkspaceFolder(each.as_uri(), each.name) for each in folders],
        )
        self.capabilities = (await self.client.initialize_async(params)).capabilities
        self.client.initialized(types.InitializedParams())

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The language server's."""
        process = self.client._server
        assert process is not None
        return process

    def send(self, message: dict[str, Any]) -> None:
        """Sends any message, even an invalid one."""
        self.send_body(json.dumps(message).encode())

    def send_body(self, body: bytes) -> None:
        """Sends anything as a message."""
        assert self.client.protocol.writer is not None
        self.client.protocol.writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def leave(self) -> int:
        """Ends the language server's process as an editor does. Returns its exit status."""
        if self.process.returncode is None:
            await self.client.shutdown_async(None)
            self.client.exit(None)
        status, stdin = await self.process.wait(), self.process.stdin
        assert stdin is not None, "it is a pipe"
        stdin.close()
        with contextlib.suppress(ConnectionError):
            await stdin.wait_closed()  # a pipe that is open when the loop ends is warned of in a later test
        return status

    def open(self, text: str) -> None:
        item = types.TextDocumentItem(self.uri, self.language_id, self._version, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def close(self) -> None:
        document = types.TextDocumentIdentifier(self.uri)
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    def edit(self, line: int, character: int, text: str, end: tuple[int, int] | None = None) -> None:
        """Replaces the text from a position to `end`; without `end`, inserts at the position."""
        self._version += 1
        start = types.Position(line, character)
        span = types.Range(start, types.Position(*end) if end else start)
        change = types.TextDocumentContentChangePartial(range=span, text=text)
        document = types.VersionedTextDocumentIdentifier(self._version, self.uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def replace_all(self, text: str) -> None:
        """Replaces the whole text."""
        self._version += 1
        document = types.VersionedTextDocumentIdentifier(self._version, self.uri)
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def push_settings(self, settings: Any) -> None:
        """workspace/didChangeConfiguration."""
        self.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))

    def rest(self, start: tuple[int, int], end: tuple[int, int] | None = None, uri: str = URI) -> None:
        """Tells where the cursor is, or what is selected."""
        places = [{"line": line, "character": character} for line, character in (start, end or start)]
        self.tell_cursor({"textDocument": {"uri": uri}, "range": {"start": places[0], "end": places[1]}})

    def tell_cursor(self, params: Any) -> None:
        """Sends the notification with any parameters."""
        self.send({"jsonrpc": "2.0", "method": CURSOR_NOTIFICATION, "params": params})

    async def ghost(self, line: int, character: int) -> types.InlineCompletionItem:
        """Returns the item to draw at a position; fails the test if there is none."""
        async with asyncio.timeout(WITHIN_S):
            while (result := await self.ask(line, character)) is None:  # whether a rule excludes the file is not known
                await asyncio.sleep(0.05)
        assert result.items, "there is nothing to suggest"
        (item,) = result.items
        return item

    def ask(
        self, line: int, character: int, selected: types.SelectedCompletionInfo | None = None, is_invoked: bool = False
    ) -> "asyncio.Future[types.InlineCompletionList | None]":
        """Returns the result of textDocument/inlineCompletion.

        `selected`: in the editor's completion menu. `is_invoked`: by the user, and not by typing.
        """
        kinds = types.InlineCompletionTriggerKind
        context = types.InlineCompletionContext(kinds.Invoked if is_invoked else kinds.Automatic, selected)
        document, position = types.TextDocumentIdentifier(self.uri), types.Position(line, character)
        params = types.InlineCompletionParams(context, document, position)
        # The type in pygls also allows a sequence of items, which this server never sends.
        answer: Awaitable[Any] = self.client.text_document_inline_completion_async(params)
        return asyncio.ensure_future(answer)

    def cancel_last_request(self) -> None:
        """Sends $/cancelRequest for the last request. Cancelling the client's own future would send nothing."""
        request_id = list(self.client.protocol._request_futures)[-1]
        self.client.protocol.notify(types.CANCEL_REQUEST, types.CancelParams(request_id))

    async def menu(self, line: int, character: int) -> types.CompletionList:
        """Returns the result of textDocument/completion."""
        params = types.CompletionParams(types.TextDocumentIdentifier(self.uri), types.Position(line, character))
        result = await self.client.text_document_completion_async(params)
        assert isinstance(result, types.CompletionList)
        return result

    def _listen(self) -> None:
        def show(params: types.ShowMessageParams) -> None:
            self.shown.append(params.message)

        def log(params: types.LogMessageParams) -> None:
            self.logged.append(params.message)

        def take_progress(params: types.ProgressParams) -> None:
            self.progress.append(params.value)

        def create_progress(params: types.WorkDoneProgressCreateParams) -> None:
            self.progress_tokens.append(params.token)
            self.progress.append("create")
            if self.refuses_progress:
                raise ValueError

        async def configure(_: types.ConfigurationParams) -> Any:
            self.num_configuration_requests += 1
            answer = self.answer_configuration()
            return await answer if isinstance(answer, asyncio.Future) else answer

        def take_report(params: Any) -> None:
            self.reports.append((params.uri, params.state, params.code, params.message))

        self.client.feature(STATUS_NOTIFICATION)(take_report)
        self.client.feature(types.WINDOW_SHOW_MESSAGE)(show)
        self.client.feature(types.WINDOW_LOG_MESSAGE)(log)
        self.client.feature(types.PROGRESS)(take_progress)
        self.client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)(create_progress)
        self.client.feature(types.WORKSPACE_CONFIGURATION)(configure)


class WriteScript(Protocol):
    """The type of a function that returns a Script for the given rules."""

    def __call__(self, *rules: dict[str, Any], **options: Any) -> Script: ...


class StartEditor(Protocol):
    """The type of a function that starts the Script's language server and returns a connected editor."""

    def __call__(
        self,
        script: Script,
        capabilities: types.ClientCapabilities | None = None,
        options: Any = None,
        settings: Any = None,
    ) -> Awaitable[LspEditor]: ...


def build_capabilities(
    draws_ghost_text: bool = True,
    answers_configuration: bool = True,
    shows_progress: bool = False,
) -> types.ClientCapabilities:
    """Returns an editor's client capabilities."""
    inline = types.InlineCompletionClientCapabilities() if draws_ghost_text else None
    return types.ClientCapabilities(
        text_document=types.TextDocumentClientCapabilities(inline_completion=inline),
        window=types.WindowClientCapabilities(work_done_progress=shows_progress),
        workspace=types.WorkspaceClientCapabilities(configuration=answers_configuration),
    )


WITHIN_S = 20.0


async def wait_for(condition: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Waits until the condition holds; fails the test if it never does."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)
