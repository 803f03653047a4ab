"""An editor reduced to its LSP client, and the language server with a scripted model that it speaks to."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient


@dataclass(frozen=True, slots=True)
class Script:
    """A language server whose model answers by rules."""

    command: Sequence[str]  # starts it on stdio
    folder: Path  # in this folder
    log: Path

    @property
    def events(self) -> list[dict[str, str]]:
        """What the model was asked so far: `event`, `prefix`, `suffix`."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def count(self, event: str) -> int:
        """How often something happened: started, finished, cancelled, closed."""
        return sum(entry["event"] == event for entry in self.events)


URI = "file:///project/file.py"


class LspEditor:
    """An editor with one document, its cursor at the end of what is typed, speaking to a language server."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.capabilities = types.ServerCapabilities()
        self.shown: list[str] = []  # window/showMessage
        self.logged: list[str] = []  # window/logMessage
        self.settings: Any = None  # what it answers to workspace/configuration
        self._version = 0
        self._listen()

    async def start(self, capabilities: types.ClientCapabilities, options: Any = None) -> None:
        """The handshake."""
        params = types.InitializeParams(capabilities=capabilities, initialization_options=options)
        self.capabilities = (await self.client.initialize_async(params)).capabilities
        self.client.initialized(types.InitializedParams())

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The language server's."""
        process = self.client._server
        assert process is not None
        return process

    def send(self, message: dict[str, Any]) -> None:
        """Any message, a wrong one too."""
        body = json.dumps(message).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def leave(self) -> int:
        """The farewell; the exit status."""
        if self.process.returncode is None:
            await self.client.shutdown_async(None)
            self.client.exit(None)
        return await self.process.wait()

    def open(self, text: str) -> None:
        item = types.TextDocumentItem(URI, "python", self._version, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def edit(self, line: int, character: int, text: str, end: tuple[int, int] | None = None) -> None:
        """Replaces text, from a position up to `end` or to where it starts."""
        self._version += 1
        start = types.Position(line, character)
        span = types.Range(start, types.Position(*end) if end else start)
        change = types.TextDocumentContentChangePartial(range=span, text=text)
        document = types.VersionedTextDocumentIdentifier(self._version, URI)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    async def ghost(self, line: int, character: int) -> types.InlineCompletionItem | None:
        """The item to draw at a position, None where there is none or the server has no answer."""
        result = await self.ask(line, character)
        items = result.items if isinstance(result, types.InlineCompletionList) else result
        return items[0] if items else None

    def ask(self, line: int, character: int) -> "Awaitable[Any]":
        """The bare answer to textDocument/inlineCompletion."""
        context = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic)
        document, position = types.TextDocumentIdentifier(URI), types.Position(line, character)
        params = types.InlineCompletionParams(context, document, position)
        return asyncio.ensure_future(self.client.text_document_inline_completion_async(params))

    def cancel_last_request(self) -> None:
        """$/cancelRequest for what was asked last. The client's own future would only forget the request."""
        request_id = list(self.client.protocol._request_futures)[-1]
        self.client.protocol.notify(types.CANCEL_REQUEST, types.CancelParams(request_id))

    async def menu(self, line: int, character: int) -> types.CompletionList:
        """The answer to textDocument/completion."""
        params = types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(line, character))
        result = await self.client.text_document_completion_async(params)
        assert isinstance(result, types.CompletionList)
        return result

    def _listen(self) -> None:
        @self.client.feature(types.WINDOW_SHOW_MESSAGE)
        def _show(params: types.ShowMessageParams) -> None:
            self.shown.append(params.message)

        @self.client.feature(types.WINDOW_LOG_MESSAGE)
        def _log(params: types.LogMessageParams) -> None:
            self.logged.append(params.message)

        @self.client.feature(types.WORKSPACE_CONFIGURATION)
        def _configuration(params: types.ConfigurationParams) -> list[Any]:
            return [self.settings for _ in params.items]


def build_capabilities(encoding: str = "utf-16", draws_ghost_text: bool = True) -> types.ClientCapabilities:
    """What an editor says of itself."""
    inline = types.InlineCompletionClientCapabilities() if draws_ghost_text else None
    return types.ClientCapabilities(
        general=types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind(encoding)]),
        text_document=types.TextDocumentClientCapabilities(inline_completion=inline),
        workspace=types.WorkspaceClientCapabilities(configuration=True),
    )


async def wait_for(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    """Waits until something is so."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)
