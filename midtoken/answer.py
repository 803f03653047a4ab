"""The whole answer to a completion request, for commands that show it at once."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from inference.protocol.completion import CompletionChunk, CompletionRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of a completion, and its last chunk, which has the statistics and the explanation."""

    text: str
    last: CompletionChunk


class Completer(Protocol):
    """Answers completion requests. `midtoken.connection.Connection` implements it."""

    def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks of the completion."""


async def complete(completer: Completer, request: CompletionRequest) -> Answer:
    """Returns the answer. Cancelling the call frees the sequence on the server. Raises MidtokenError."""
    async with aclosing(completer.stream(request)) as stream:
        chunks = [chunk async for chunk in stream]
    return Answer("".join(chunk.text for chunk in chunks), chunks[-1])
