"""The connection of the playground to the completion server, which all its pages share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from inference.protocol.characters import CharacterAnswer, CharacterRequest
from midtoken.answer import Completer


class Backend(Completer, Protocol):
    """Answers completion requests and requests to the character-level model: `midtoken.connection.Connection`."""

    async def ask(self, request: CharacterRequest) -> CharacterAnswer:
        """Returns the character-level model's answer."""

    async def close(self) -> None:
        """Closes the connection."""


class Link:
    """Connects when it is first asked, and again after the connection is lost."""

    def __init__(self, connect: Callable[[], Awaitable[Backend]], retry_s: float = 5.0) -> None:
        """`connect` finds or starts the completion server. After it failed, it is called again `retry_s` later."""
        self._connect = connect
        self._retry_s = retry_s
        self._backend: Backend | None = None
        self._opening: asyncio.Task[Backend] | None = None
        self._opened_s = 0.0

    async def get(self) -> Backend:
        """Returns the connection. Raises what `connect` raised; within `retry_s` without a new attempt."""
        if self._opening is None or self._may_retry(self._opening):
            self._opened_s = asyncio.get_running_loop().time()
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)  # a question that was superseded does not end it

    async def drop(self, backend: Backend) -> None:
        """Closes a connection that is lost. The next `get` connects again. Does nothing for one dropped before."""
        if self._backend is backend:
            self._backend = self._opening = None
            await backend.close()

    async def close(self) -> None:
        """Ends an attempt to connect, or closes the connection."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._backend is not None:
            await self.drop(self._backend)

    async def _open(self) -> Backend:
        self._backend = await self._connect()
        return self._backend

    def _may_retry(self, opening: "asyncio.Task[Backend]") -> bool:
        has_failed = opening.done() and (opening.cancelled() or opening.exception() is not None)
        return has_failed and asyncio.get_running_loop().time() - self._opened_s >= self._retry_s
