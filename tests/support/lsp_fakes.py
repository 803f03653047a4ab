"""Backends and windows whose every move a test decides."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inference.errors import MidtokenError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason


class FedStream:
    """One request whose chunks the test feeds by hand."""

    def __init__(self, request: CompletionRequest) -> None:
        self.request = request
        self.is_cancelled = False
        self._events: asyncio.Queue[CompletionChunk | MidtokenError | Exception] = asyncio.Queue()

    def feed(self, text: str) -> None:
        """More text comes."""
        self._events.put_nowait(CompletionChunk(text))

    def finish(self, text: str = "") -> None:
        """The last text comes."""
        self._events.put_nowait(CompletionChunk(text, finish_reason=FinishReason.EXTENT, stats=CompletionStats()))

    def fail(self, error: Exception) -> None:
        """It breaks off."""
        self._events.put_nowait(error)

    async def iterate(self) -> AsyncIterator[CompletionChunk]:
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if event.is_last:
                    return
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise


class FedBackend:
    """Takes requests and leaves the answers to the test."""

    def __init__(self) -> None:
        self.streams: list[FedStream] = []
        self.is_closed = False

    async def stream(self, request: CompletionRequest) -> AsyncIterator[CompletionChunk]:
        stream = FedStream(request)
        self.streams.append(stream)
        async for chunk in stream.iterate():
            yield chunk

    async def close(self) -> None:
        self.is_closed = True


@dataclass(frozen=True, slots=True)
class Rule:
    """What to answer to a prefix with a certain end: texts, each after a delay."""

    ends_with: str
    texts: Sequence[str]
    delay_s: float = 0.0


class ScriptedBackend:
    """Answers by rules, the first that fits, and writes what happened as lines into a file."""

    def __init__(self, rules: Sequence[Rule], log: Path) -> None:
        self._rules = rules
        self._log = log

    async def stream(self, request: CompletionRequest) -> AsyncIterator[CompletionChunk]:
        self._write("started", request)
        outcome = "cancelled"
        try:
            rule = next((rule for rule in self._rules if request.prefix.endswith(rule.ends_with)), Rule("", ()))
            for text in rule.texts:
                await asyncio.sleep(rule.delay_s)
                yield CompletionChunk(text)
            yield CompletionChunk("", finish_reason=FinishReason.EXTENT, stats=CompletionStats())
            outcome = "finished"
        finally:
            self._write(outcome, request)

    async def close(self) -> None:
        self._write("closed", None)

    def _write(self, event: str, request: CompletionRequest | None) -> None:
        entry = {"event": event}
        if request is not None:
            entry |= {"prefix": request.prefix, "suffix": request.suffix}
        with self._log.open("a") as file:
            file.write(json.dumps(entry) + "\n")


@dataclass
class RecordingWindow:
    """What a person would have been told."""

    logs: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    progress: list[str] = field(default_factory=list)

    def log(self, text: str) -> None:
        self.logs.append(text)

    def show_error(self, text: str) -> None:
        self.errors.append(text)

    def begin_progress(self, text: str) -> None:
        self.progress.append("begin " + text)

    def end_progress(self, text: str) -> None:
        self.progress.append("end " + text)
