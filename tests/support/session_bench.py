"""Sessions of the language server with a backend that the test feeds."""

import asyncio
import math
from itertools import accumulate

from lsprotocol.types import Position, TextDocumentItem

from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from lsp_server.assistant import adapt
from lsp_server.backend import Connector
from lsp_server.context import Context
from lsp_server.documents import Document, Place
from lsp_server.guard import Cleared
from lsp_server.no_suggestion import NoSuggestion, Reason
from lsp_server.session import EditorRequest, Purpose, Session
from lsp_server.settings import Settings
from tests.support.lsp_fakes import FedBackend, FedStream, Said, clear


async def _build(_: Session, request: EditorRequest, purpose: Purpose) -> Cleared[CompletionRequest]:
    """Sends the text as it is."""
    return clear(adapt(CompletionRequest(request.context.prefix, request.context.suffix), purpose, request.confidence))


class Bench:
    """The sessions of two documents that share a backend, which the test feeds."""

    def __init__(self) -> None:
        self.status = Said()
        self.backends: list[FedBackend] = []
        self.connector = Connector(self._connect, self.status, retry_s=0)
        documents = [Document(TextDocumentItem(f"file:///{name}.py", "python", 0, "")) for name in "ab"]
        self.session, self.other_session = (Session(each, _build, self.connector, self.status) for each in documents)

    def ask(self, prefix: str, suffix: str = "", session: Session | None = None) -> "asyncio.Task[str | Reason]":
        return asyncio.create_task(complete(session or self.session, prefix, suffix))

    async def begin(self, prefix: str, suffix: str = "") -> "asyncio.Task[str | Reason]":
        """Asks, and runs everything that can run without an answer."""
        task = self.ask(prefix, suffix)
        await settle()
        return task

    async def finish(
        self, prefix: str, text: str, suffix: str = "", reason: FinishReason | None = FinishReason.EXTENT
    ) -> str | Reason:
        """Asks, and ends the generation that this starts with a text. Returns the answer."""
        task = await self.begin(prefix, suffix)
        self.stream.finish(text, reason)
        return await asyncio.wait_for(task, 5)

    @property
    def backend(self) -> FedBackend:
        """The backend that was connected last."""
        return self.backends[-1]

    @property
    def stream(self) -> FedStream:
        """The one that was started last."""
        return self.backend.streams[-1]

    @property
    def prefixes(self) -> list[str]:
        return [stream.request.prefix for stream in self.backend.streams]

    @property
    def errors(self) -> list[str]:
        """What the user was told."""
        return self.status.shown

    async def _connect(self, *_: object) -> FedBackend:
        self.backends.append(FedBackend())
        return self.backend


def build_request(prefix: str, suffix: str = "", confidence: float = 0.5) -> EditorRequest:
    return EditorRequest(Place(Position(0, 0)), Context(prefix, suffix), Settings(), confidence)


async def complete(session: Session, prefix: str, suffix: str = "", confidence: float = 0.5) -> str | Reason:
    """Returns the text to suggest, or the code of why there is none."""
    answer = await session.complete(build_request(prefix, suffix, confidence))
    return answer.reason if isinstance(answer, NoSuggestion) else answer


async def settle() -> None:
    """Runs everything that can run without more input."""
    for _ in range(20):
        await asyncio.sleep(0)


def build_chunk(
    *tokens: tuple[str, float], reason: FinishReason | None = FinishReason.UNLIKELY, is_last: bool = True
) -> CompletionChunk:
    """Tokens, each with its probability after those before it."""
    ends = tuple(accumulate(len(text) for text, _ in tokens))
    log_probs = tuple(accumulate(math.log(probability) for _, probability in tokens))
    text, stats = "".join(text for text, _ in tokens), CompletionStats() if is_last else None
    return CompletionChunk(text, text_ends=ends, log_probs=log_probs, finish_reason=reason, stats=stats)
