"""A model that a completion server runs, as the commands use it: each request is cleared before it is sent."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.completion import CompletionRequest
from lsp_server.privacy.guard import Guard
from midtoken.api import Completion, Model, read_completion
from midtoken.connection import Connection, open_connection
from midtoken.input_text import ClearedText
from midtoken.server_arguments import may_be_remote

_Answer = TypeVar("_Answer")


def open_model(options: argparse.Namespace, text: ClearedText | None = None) -> Model:
    """Returns the model of the server that the options name, which is started and connected to when it is first asked.

    `text`: what clears the requests; None if no text of theirs is of a file.
    """
    return Model(_Served(options, text))


class _Served:
    """A `Backend` that sends requests."""

    def __init__(self, options: argparse.Namespace, text: ClearedText | None) -> None:
        self._options, self._text = options, text
        self._guard = Guard(is_remote=may_be_remote(options))
        self._runner, self._stack = asyncio.Runner(), AsyncExitStack()
        self._connection: Connection | None = None

    def complete(self, request: CompletionRequest) -> Completion:
        cleared = self._guard.clear(request, ()) if self._text is None else self._text.clear(request)

        async def ask(connection: Connection) -> Completion:
            if self._text is not None:
                self._text.note_languages(connection.description.languages)
            return await read_completion(connection.stream(cleared))

        return self._run(ask)

    def ask(self, request: CharacterRequest) -> CharacterAnswer:
        cleared = self._guard.clear(request, ()) if self._text is None else self._text.clear(request)
        return self._run(lambda connection: connection.ask(cleared))

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    def _run(self, ask: Callable[[Connection], Awaitable[_Answer]]) -> _Answer:
        async def run() -> _Answer:
            if self._connection is None:
                self._connection = await self._stack.enter_async_context(open_connection(self._options))
            return await ask(self._connection)

        return self._runner.run(run())
