"""An editor and the language server in one process. They exchange LSP messages as bytes, without pipes."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from threading import Event
from typing import Any
from unittest.mock import patch

from lsprotocol import types
from pygls.io_ import run_async
from pygls.lsp.client import LanguageClient
from pygls.protocol import default_converter

from lsp_server import assistant
from lsp_server.backend import CompletionBackend, OnDownload
from lsp_server.exclusion import Policy
from lsp_server.model_offer import OfferedModel
from lsp_server.protocol import MessageReader
from lsp_server.server import MidtokenServer
from lsp_server.settings import Settings
from tests.support.lsp_editor import WITHIN_S, LspEditor, build_capabilities, wait_for
from tests.support.lsp_fakes import FedBackend, FedStream

_build_converter = cache(default_converter)  # one for all editors is much quicker


class InProcess:
    """A language server, its backend, which the test feeds, and an editor."""

    def __init__(
        self, languages: tuple[str, ...] | None = None, is_remote: bool = True, offered: OfferedModel | None = None
    ) -> None:
        self.backend = FedBackend(languages)
        self.models: list[str | None] = []  # with which it was connected, one for each attempt
        self.contexts: list[int | None] = []  # as models
        self.download: Callable[[OnDownload], Awaitable[None]] | None = None  # before it is connected
        self.server = MidtokenServer(self._connect, languages, Policy(os.environ), is_remote, offered)
        self.editor = LspEditor(LanguageClient("editor", "1", converter_factory=_build_converter))
        self.written: list[bytes] = []  # by the server

    async def start(self, capabilities: types.ClientCapabilities | None = None, *arguments: Any, **named: Any) -> None:
        """Initializes the server. By default, the editor draws ghost text and answers workspace/configuration."""
        await self.editor.start(capabilities or build_capabilities(), *arguments, **named)

    async def start_with(self, text: str, *arguments: Any, **named: Any) -> None:
        """Starts as `start` does, and opens a document."""
        await self.start(*arguments, **named)
        self.editor.open(text)

    async def find_stream(self, number: int = 0) -> FedStream:
        """Waits until the backend has this stream, counted from 0."""
        await wait_for(lambda: len(self.backend.streams) > number)
        return self.backend.streams[number]

    async def ask_and_finish(
        self,
        line: int,
        character: int,
        text: str,
        selected: types.SelectedCompletionInfo | None = None,
    ) -> types.InlineCompletionList:
        """Asks at a position, and finishes the generation that this starts. Returns the answer, which is not null."""
        number = len(self.backend.streams)
        answer = self.editor.ask(line, character, selected)
        (await self.find_stream(number)).finish(text)
        result = await answer
        assert result is not None
        return result

    async def exchange(self, method: str, params: Any, request_id: Any = "any") -> dict[str, Any]:
        """Sends a request with these parameters as they are. Returns its response, also as it is."""
        begin, found = len(self.written), list[dict[str, Any]]()

        def has_answer() -> bool:
            messages = (json.loads(data.partition(b"\r\n\r\n")[2]) for data in self.written[begin:])
            found.extend(each for each in messages if "method" not in each and each["id"] == request_id)
            return found != []

        self.editor.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        await wait_for(has_answer)
        return found[0]

    @property
    def said(self) -> list[str]:
        """The notifications and requests of the server, as they were sent."""
        return [data.decode() for data in self.written if b'"method"' in data]

    async def _connect(self, settings: Settings, on_download: OnDownload) -> CompletionBackend:
        self.models.append(settings.model)
        self.contexts.append(settings.context)
        if self.download is not None:
            await self.download(on_download)
        return self.backend


@asynccontextmanager
async def run_in_process(
    languages: tuple[str, ...] | None = None, is_remote: bool = True, offered: OfferedModel | None = None
) -> AsyncIterator[InProcess]:
    """Connects the editor and the server inside the block. `initialize` has not been sent.

    `languages`: those that the model knows; None: any. `is_remote`: text may go to another machine.
    """
    # On a busy machine, to look at a file may take longer than a person waits.
    with patch.multiple(assistant, _OWN_WAIT_S=WITHIN_S, _OTHERS_WAIT_S=WITHIN_S / 20):
        both = InProcess(languages, is_remote, offered)
        to_server, to_editor = MessageReader(), asyncio.StreamReader()
        server, editor = both.server.protocol, both.editor.client.protocol
        server.set_writer(_Writer(to_editor, both.written))
        editor.set_writer(_Writer(to_server, []))
        tasks = [
            asyncio.create_task(
                run_async(server.has_exited, to_server, server, error_handler=both.server.report_server_error)
            ),
            asyncio.create_task(run_async(Event(), to_editor, editor)),
        ]
        try:
            yield both
        finally:
            await both.server.assistant.close_all()
            to_server.feed_eof()
            to_editor.feed_eof()
            await asyncio.gather(*tasks)


@dataclass(frozen=True, slots=True)
class _Writer:
    """The writer of one side. What it writes is the input of the other side."""

    reader: asyncio.StreamReader
    written: list[bytes]

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.reader.feed_data(data)

    def close(self) -> None:
        self.reader.feed_eof()
