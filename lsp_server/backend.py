"""The seam to the model, and the one connection to it, made when it is first needed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from inference.errors import MidtokenError
from inference.protocol.completion import CompletionChunk, CompletionRequest
from lsp_server.status import Status


class CompletionBackend(Protocol):
    """Answers completion requests. `inference.serving.completion_client.CompletionClient` is one."""

    def stream(self, request: CompletionRequest) -> AsyncIterator[CompletionChunk]:
        """The answer in pieces. Cancelling the task that iterates, or `aclose`, frees the sequence.

        Raises MidtokenError.
        """

    async def close(self) -> None:
        """Ends all streams and the connection."""


Connect = Callable[[], Awaitable[CompletionBackend]]


class BackendStarter:
    """One backend for all documents, started in the background and again after it was lost."""

    def __init__(self, connect: Connect, status: Status, grace_s: float = 0.2, retry_s: float = 10.0) -> None:
        """`connect` starts or finds the server, which may take long; it raises MidtokenError.

        `get` waits up to `grace_s` for it, which is enough for a server that runs already, and between two
        starts lie `retry_s` at least.
        """
        self._connect = connect
        self._status = status
        self._grace_s = grace_s
        self._retry_s = retry_s
        self._backend: CompletionBackend | None = None
        self._start_task: asyncio.Task[None] | None = None
        self._last_start_s: float | None = None

    def start(self) -> None:
        """Begins to connect, unless that is done, under way, or was tried a moment ago."""
        now_s = asyncio.get_running_loop().time()
        if self._backend is not None or self._start_task is not None:
            return
        if self._last_start_s is not None and now_s - self._last_start_s < self._retry_s:
            return
        self._last_start_s = now_s
        self._start_task = asyncio.create_task(self._start())

    async def get(self) -> CompletionBackend | None:
        """The backend, or None while there is none; the person has been told why."""
        self.start()
        if self._start_task is not None:
            await asyncio.wait({self._start_task}, timeout=self._grace_s)
        return self._backend

    async def drop(self, backend: CompletionBackend) -> None:
        """Forgets a backend that broke off; a `get` after `retry_s` starts anew."""
        if self._backend is backend:
            self._backend = None
            await backend.close()

    async def close(self) -> None:
        """Ends the start under way and the connection."""
        if self._start_task is not None:
            self._start_task.cancel()
            await asyncio.wait({self._start_task})
        if self._backend is not None:
            backend, self._backend = self._backend, None
            await backend.close()

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        notice = loop.call_later(self._grace_s, self._status.starting)
        try:
            self._backend = await self._connect()
            self._status.ready(loop.time() - started_s)
        except MidtokenError as error:
            self._status.not_started(error)
        finally:
            notice.cancel()
            self._start_task = None
