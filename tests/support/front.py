"""The HTTP application, in this process, before a model that the test feeds."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from aiohttp import ClientSession, ClientTimeout

from inference.platforms import ADDRESS, listen
from inference.protocol.characters import CharacterAnswer, CharacterRequest, TextProbability
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Description,
    FinishReason,
)
from lsp_server.guard import Cleared
from midtoken.connection import Connection
from midtoken.http.app import App
from midtoken.installed import find_bundled_model
from tests.support.lsp_fakes import FedBackend, FedStream

_MODEL_DIR = find_bundled_model()
_PATIENCE = ClientTimeout(20)
_Answer = TypeVar("_Answer")
_STATS = CompletionStats(
    num_tokens=7, num_context_tokens=20, num_cached_tokens=15, queue_ms=2.0, first_chunk_ms=12.0, total_ms=37.0
)


class FedModel(FedBackend):
    failure: Exception | None = None
    problem = ""

    async def read_description(self) -> Description:
        if self.failure is not None:
            raise self.failure
        return Description(problem=self.problem, context_tokens=512)

    async def ask(self, request: Cleared[CharacterRequest]) -> CharacterAnswer:
        return TextProbability(-1.0, -1.0, -float(len(request.value.text)))

    async def find_problem(self) -> str:
        return str(self.failure or self.problem)

    async def read_metrics(self) -> str:
        if self.failure is not None:
            raise self.failure
        return "midtoken_memory_bytes 1\n"


class FrontClient:
    """The front, and a client of it."""

    def __init__(self, url: str, session: ClientSession, model: FedModel) -> None:
        self.url, self.session, self.model = url, session, model

    async def post(self, path: str, body: object, headers: Mapping[str, str] = {}) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        async with self.session.post(f"{self.url}{path}", data=io.BytesIO(data), headers=sent) as response:
            return response.status, await response.text()

    async def begin(self, request: Coroutine[Any, Any, _Answer]) -> tuple[asyncio.Task[_Answer], FedStream]:
        """Starts a request, and returns it and its stream once the model is asked."""
        number, asking = len(self.model.streams), asyncio.ensure_future(request)
        return asking, await self.find_stream(number)

    async def find_stream(self, number: int) -> FedStream:
        async with asyncio.timeout(_PATIENCE.total):
            while len(self.model.streams) <= number:
                await asyncio.sleep(0)
        return self.model.streams[number]

    async def ask(self, path: str, body: object, *chunks: CompletionChunk) -> tuple[CompletionRequest, Any]:
        """Returns what the model is asked, and the answer of a request that it answers with these chunks."""
        asking, stream = await self.begin(self.post(path, body))
        for chunk in chunks or (last_chunk("e"),):
            stream.send(chunk)
        status, text = await asking
        assert status == 200, text
        return stream.request, json.loads(text)


def last_chunk(text: str, reason: FinishReason = FinishReason.END, candidate: int = 0) -> CompletionChunk:
    return CompletionChunk(text, candidate, finish_reason=reason, stats=_STATS)


@asynccontextmanager
async def run_front(
    model_dir: Path | None = _MODEL_DIR, *, is_remote: bool = True, confidence: float = 0.0
) -> AsyncIterator[FrontClient]:
    model = FedModel()
    model.prefetches = model.streams
    app = App(cast("Connection", model), "default", model_dir, is_remote=is_remote, confidence=confidence)
    with listen(0) as listener:
        async with app.serve(listener), ClientSession(timeout=_PATIENCE) as session:
            yield FrontClient(f"http://{ADDRESS}:{listener.getsockname()[1]}", session, model)
