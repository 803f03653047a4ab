"""An editor and the language server in one process. They exchange LSP messages as bytes, without pipes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event
from typing import Any

from lsprotocol import types
from pygls.io_ import run_async
from pygls.lsp.client import LanguageClient

from lsp_server.backend import CompletionBackend
from lsp_server.features import build_server
from lsp_server.server import MidtokenServer
from tests.support.lsp_editor import LspEditor, build_capabilities
from tests.support.lsp_fakes import FedBackend


class InProcess:
    """A language server, its backend, which the test feeds, and an editor. `error` makes connecting fail."""

    def __init__(self) -> None:
        self.backend = FedBackend()
        self.error: Exception | None = None
        self.num_connects = 0
        self.server: MidtokenServer = build_server(self._connect)
        self.editor = LspEditor(LanguageClient("editor", "1"))

    async def start(self, capabilities: types.ClientCapabilities | None = None, options: Any = None) -> None:
        """Initializes the server. By default, the editor draws ghost text and answers workspace/configuration."""
        await self.editor.start(capabilities or build_capabilities(), options)

    async def _connect(self) -> CompletionBackend:
        self.num_connects += 1
        if self.error is not None:
            raise self.error
        return self.backend


@asynccontextmanager
async def run_in_process() -> AsyncIterator[InProcess]:
    """Connects the editor and the server inside the block. `initialize` has not been sent."""
    both = InProcess()
    to_server, to_editor = asyncio.StreamReader(), asyncio.StreamReader()
    server, editor = both.server.protocol, both.editor.client.protocol
    server.set_writer(_Writer(to_editor))
    editor.set_writer(_Writer(to_server))
    tasks = [
        asyncio.create_task(run_async(Event(), to_server, server, error_handler=both.server.report_server_error)),
        asyncio.create_task(run_async(Event(), to_editor, editor)),
    ]
    try:
        yield both
    finally:
        await both.server.close_all()
        to_server.feed_eof()
        to_editor.feed_eof()
        await asyncio.gather(*tasks)


class _Writer:
    """The writer of one side. What it writes is the input of the other side."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def write(self, data: bytes) -> None:
        self._reader.feed_data(data)

    def close(self) -> None:
        self._reader.feed_eof()
