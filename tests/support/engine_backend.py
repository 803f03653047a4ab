"""A backend that asks an engine in the same process, and notes what each request has cost."""

import asyncio
from collections.abc import AsyncGenerator

from inference.engine.engine import Engine
from inference.errors import MidtokenError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats
from lsp_server.privacy.guard import Cleared


class EngineBackend:
    """What a connection is, without the server between."""

    def __init__(self, engine: Engine) -> None:
        self.languages: tuple[str, ...] | None = None
        self.runs_as = engine.runs_as
        self.answered: list[tuple[CompletionRequest, CompletionStats]] = []  # those that were not cancelled
        self._engine = engine

    async def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        sink = _QueueSink()
        self._engine.submit(request.value, sink)
        try:
            while True:
                event = await sink.events.get()
                if isinstance(event, MidtokenError):
                    raise event
                if event.stats is not None:
                    self.answered.append((request.value, event.stats))
                yield event
                if event.is_last:
                    return
        finally:
            sink.has_left = True

    async def close(self) -> None:
        """Does nothing: the engine belongs to the test."""


class _QueueSink:
    def __init__(self) -> None:
        self.events: asyncio.Queue[CompletionChunk | MidtokenError] = asyncio.Queue()
        self.has_left = False
        self._loop = asyncio.get_running_loop()

    def send(self, chunk: CompletionChunk) -> None:
        self._loop.call_soon_threadsafe(self.events.put_nowait, chunk)

    def fail(self, error: MidtokenError) -> None:
        self._loop.call_soon_threadsafe(self.events.put_nowait, error)

    def is_cancelled(self) -> bool:
        return self.has_left
