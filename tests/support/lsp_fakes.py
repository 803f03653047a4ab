"""A backend that the test feeds, and one that follows rules."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

from pygls.lsp.server import LanguageServer

from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, Description, FinishReason
from lsp_server.guard import Cleared, _GuardOnly
from lsp_server.status import Status


def clear(request: CompletionRequest) -> Cleared[CompletionRequest]:
    """Returns what the guard has cleared."""
    return Cleared(request, _GuardOnly())


class Said(Status):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        super().__init__(create_autospec(LanguageServer, instance=True))
        self.shown: list[str] = []
        self.begun: list[str] = []
        self.ended: list[str] = []

    def show(self, text: str, *_: Any) -> None:
        self.shown.append(text)

    def log(self, text: str, *_: Any) -> None:
        pass

    def report(self, *_: Any) -> None:
        pass

    def begin_progress(self, text: str, *_: Any) -> None:
        self.begun.append(text)

    def end_progress(self, text: str) -> None:
        self.ended.append(text)


class FedStream:
    """One request whose chunks the test feeds by hand."""

    def __init__(self, request: CompletionRequest) -> None:
        self.request = request
        self.is_cancelled = False
        self._events: asyncio.Queue[CompletionChunk | BaseException] = asyncio.Queue()

    def feed(self, text: str, candidate: int = 0) -> None:
        """Sends a chunk of text."""
        self._events.put_nowait(CompletionChunk(text, candidate))

    def send(self, event: CompletionChunk | BaseException) -> None:
        """Sends any chunk, or ends the stream with an error."""
        self._events.put_nowait(event)

    def finish(self, text: str = "", reason: FinishReason | None = FinishReason.EXTENT) -> None:
        """Sends the last chunk of text."""
        self._events.put_nowait(CompletionChunk(text, finish_reason=reason, stats=CompletionStats()))

    def fail(self, error: BaseException) -> None:
        """Ends the stream with an error."""
        self._events.put_nowait(error)

    async def iterate(self) -> AsyncGenerator[CompletionChunk, None]:
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, BaseException):
                    raise event
                yield event
                if event.is_last:
                    return
        except (asyncio.CancelledError, GeneratorExit):
            self.is_cancelled = True
            raise


class FedBackend:
    """A backend whose answers the test feeds.

    After `close` it behaves like a closed gRPC channel: open streams end with CancelledError, new ones are refused.
    """

    def __init__(self, languages: tuple[str, ...] | None = None) -> None:
        self.description = Description(languages or ())
        self.streams: list[FedStream] = []
        self.prefetches: list[FedStream] = []  # those of requests for which nobody waits
        self.is_closed = False
        self.answer: str | None = None  # to each request at once

    async def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        if self.is_closed:
            raise RuntimeError("the channel is closed")
        stream = FedStream(request.value)
        (self.prefetches if request.value.is_prefetch else self.streams).append(stream)
        if self.answer is not None:
            stream.finish(self.answer)
        async for chunk in stream.iterate():
            yield chunk

    async def close(self) -> None:
        self.is_closed = True
        for stream in self.streams + self.prefetches:
            stream.fail(asyncio.CancelledError())


class ScriptedBackend:
    """A backend that answers by the first matching rule, and writes each event to a file as a line of JSON.

    A rule has the texts that answer prefixes that end with `ends_with`, and the delay before each.
    """

    def __init__(self, rules: Sequence[dict[str, Any]], log: Path) -> None:
        self.description = Description(runs_as="int8, 2 threads (1,544 million weights)")
        self._rules = rules
        self._log = log

    async def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        if request.value.is_prefetch:
            self._write("prefetched", request.value)
            return
        self._write("started", request.value)
        outcome = "cancelled"
        try:
            matching = (rule for rule in self._rules if request.value.prefix.endswith(rule["ends_with"]))
            rule: dict[str, Any] = next(matching, {"texts": ()})
            for text in rule["texts"]:
                await asyncio.sleep(rule.get("delay_s", 0))
                yield CompletionChunk(text)
            yield CompletionChunk("", finish_reason=FinishReason.EXTENT, stats=CompletionStats())
            outcome = "finished"
        finally:
            self._write(outcome, request.value)

    async def close(self) -> None:
        self._write("closed", None)

    def _write(self, event: str, request: CompletionRequest | None) -> None:
        entry = {"event": event}
        if request is not None:
            entry |= {"prefix": request.prefix, "suffix": request.suffix}
        with self._log.open("a") as file:
            file.write(json.dumps(entry) + "\n")
