"""The editor of `midtoken demo`: an LSP client that types into one file and asks for ghost text."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from inference.protocol.completion import Healing


class DemoEditor:
    """One language server process with one open file."""

    def __init__(self, client: LanguageClient, path: Path) -> None:
        """Use `start`."""
        self._client = client
        self._uri = path.as_uri()
        self._version = 0

    @classmethod
    async def start(cls, path: Path, healing: Healing, server_arguments: Sequence[str]) -> "DemoEditor":
        """Starts `midtoken lsp` with a running completion server, and opens the file."""
        client = LanguageClient("midtoken-demo", "1")
        client.feature(types.WINDOW_LOG_MESSAGE)(_ignore)
        client.feature(types.WINDOW_SHOW_MESSAGE)(_ignore)
        await client.start_io(sys.executable, "-m", "midtoken", "lsp", *server_arguments)
        inline = types.InlineCompletionClientCapabilities()
        general = types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind.Utf32])
        capabilities = types.ClientCapabilities(
            text_document=types.TextDocumentClientCapabilities(inline_completion=inline), general=general
        )
        options: dict[str, Any] = {"healing": str(healing), "extent": "single_line"}
        await client.initialize_async(types.InitializeParams(capabilities=capabilities, initialization_options=options))
        client.initialized(types.InitializedParams())
        editor = cls(client, path)
        item = types.TextDocumentItem(editor._uri, "python", 0, path.read_text(encoding="utf-8"))
        client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return editor

    def replace(self, line: int, start: int, end: int, text: str) -> None:
        """Replaces characters `start` to `end` of a line."""
        self._version += 1
        span = types.Range(types.Position(line, start), types.Position(line, end))
        document = types.VersionedTextDocumentIdentifier(self._version, self._uri)
        change = types.TextDocumentContentChangePartial(range=span, text=text)
        self._client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    async def ask(self, line: int, character: int) -> tuple[str | None, float]:
        """Returns the ghost text at a position, None if there is no answer, and the time in milliseconds."""
        params = types.InlineCompletionParams(
            context=types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic),
            text_document=types.TextDocumentIdentifier(self._uri),
            position=types.Position(line, character),
        )
        started_at = time.perf_counter()
        result = await self._client.text_document_inline_completion_async(params)
        took_ms = 1e3 * (time.perf_counter() - started_at)
        if result is None:
            return None, took_ms
        items = result.items if isinstance(result, types.InlineCompletionList) else result
        return (_text_after_cursor(items[0], character) if items else ""), took_ms

    async def close(self) -> None:
        """Ends the language server."""
        await self._client.shutdown_async(None)
        self._client.exit(None)
        await self._client.stop()  # type: ignore[no-untyped-call]


def _ignore(_message: types.LogMessageParams | types.ShowMessageParams) -> None:
    """Ignores a message that an editor would show, because it would disturb the drawing."""


def _text_after_cursor(item: types.InlineCompletionItem, character: int) -> str:
    """Returns what an editor draws: the inserted text without the part that is already typed."""
    text = item.insert_text if isinstance(item.insert_text, str) else item.insert_text.value
    typed = character - item.range.start.character if item.range else 0
    return text[typed:]
