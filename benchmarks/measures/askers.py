"""Three ways to ask for a completion: an engine in this process, gRPC, and HTTP. Each notes what its user sees."""

import dataclasses
import http.client
import json
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from inference.engine.sink import CompletionEngine, WaitingSink
from inference.protocol.completion import CompletionChunk, CompletionRequest
from inference.serving.client import Client
from inference.serving.endpoint import ADDRESS, Endpoint

_PATH = "/v2/models/completion/generate_stream"


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion, and when it came."""

    text: str
    first_text_ms: float  # until the first chunk that has text; until the end if none has
    total_ms: float
    num_tokens: int
    num_forwards: int
    num_context_tokens: int


class Asker(Protocol):
    """A way to ask for completions, one at a time."""

    name: str

    async def ask(self, request: CompletionRequest) -> Answer:
        """Waits for the whole completion. Raises MidtokenError or OSError."""
        ...


class EngineAsker:
    """Asks an engine in this process. Blocks the event loop."""

    name = "engine"

    def __init__(self, engine: CompletionEngine) -> None:
        self._engine = engine

    async def ask(self, request: CompletionRequest) -> Answer:
        """See `Asker.ask`."""
        sink = _TimedSink()
        sent_at = time.perf_counter()
        self._engine.submit(request, sink)
        text, stats = sink.wait()
        return _build_answer(text, sent_at, sink.first_text_at, dataclasses.asdict(stats))


class GrpcAsker:
    """Asks a server over gRPC, with the client of the language server."""

    name = "gRPC"

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask(self, request: CompletionRequest) -> Answer:
        """See `Asker.ask`."""
        texts, first_text_at, stats = [], None, None
        sent_at = time.perf_counter()
        async with aclosing(self._client.stream(request)) as chunks:
            async for chunk in chunks:
                if first_text_at is None and chunk.text:
                    first_text_at = time.perf_counter()
                texts.append(chunk.text)
                stats = chunk.stats
        assert stats is not None, "the last chunk has them"
        return _build_answer("".join(texts), sent_at, first_text_at, dataclasses.asdict(stats))


class HttpAsker:
    """Asks a server over HTTP, as the README shows. Blocks the event loop."""

    name = "HTTP"

    def __init__(self, endpoint: Endpoint) -> None:
        self._connection = http.client.HTTPConnection(ADDRESS, endpoint.http_port)

    async def ask(self, request: CompletionRequest) -> Answer:
        """See `Asker.ask`."""
        fields = {
            field.name: value
            for field in dataclasses.fields(request)
            if (value := getattr(request, field.name)) != field.default
        }
        texts: list[str] = []
        first_text_at, event = None, {}
        body = json.dumps(fields)
        sent_at = time.perf_counter()
        self._connection.request("POST", _PATH, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        if response.status != http.client.OK:
            raise OSError(f"HTTP {response.status}: {response.read().decode()}")
        for line in response:
            if not line.startswith(b"data:"):
                continue
            event = json.loads(line.removeprefix(b"data:"))
            if "error" in event:
                raise OSError(event["error"])
            if first_text_at is None and event["text"]:
                first_text_at = time.perf_counter()
            texts.append(event["text"])
        return _build_answer("".join(texts), sent_at, first_text_at, json.loads(event["stats"]))

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


class _TimedSink(WaitingSink):
    """Also notes when the first text came."""

    first_text_at: float | None = None

    def send(self, chunk: CompletionChunk) -> None:
        if self.first_text_at is None and chunk.text:
            self.first_text_at = time.perf_counter()
        super().send(chunk)


def _build_answer(text: str, sent_at: float, first_text_at: float | None, stats: dict[str, Any]) -> Answer:
    """`stats` has the fields of CompletionStats."""
    ended_at = time.perf_counter()
    return Answer(
        text,
        1e3 * ((first_text_at or ended_at) - sent_at),
        1e3 * (ended_at - sent_at),
        int(stats["num_tokens"]),
        int(stats["num_forwards"]),
        int(stats["num_context_tokens"]),
    )
