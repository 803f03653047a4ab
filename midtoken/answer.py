"""Answers of the server in the form in which commands show them."""

import codecs
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from inference.protocol.characters import END
from inference.protocol.completion import CompletionChunk, CompletionRequest, ExplainedNode
from midtoken.graphemes import mark_blanks


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


def find_shares(nodes: Sequence[ExplainedNode]) -> tuple[float | None, ...]:
    """Returns for each node the share of its crossing in the mass of all; None for a node without a crossing."""
    masses = [node.log_mass for node in nodes if node.log_mass is not None]
    if not masses:
        return (None,) * len(nodes)
    largest = max(masses)
    total = largest + math.log(sum(math.exp(mass - largest) for mass in masses))
    return tuple(None if node.log_mass is None else math.exp(node.log_mass - total) for node in nodes)


@dataclass(frozen=True, slots=True)
class ByteName:
    """What a byte is shown as."""

    shown: str  # the character that it ends, or itself as \\xNN
    note: str  # its value, and its place in a character of several bytes; empty for the end of the text


def name_byte(byte: int, unfinished: bytes) -> ByteName:
    """Returns the name of a byte after `unfinished`, the bytes of an incomplete character; `END` for the text's end."""
    if byte == END:
        return ByteName("end of text", "")
    data, code = unfinished + bytes([byte]), f"0x{byte:02x}"
    if byte < 0x80:
        return ByteName(mark_blanks(chr(byte)), code)
    try:
        return ByteName(mark_blanks(data.decode()), f"{code}, the last of {len(data)} bytes")
    except UnicodeDecodeError:
        return ByteName(f"\\x{byte:02x}", f"{code}, byte {len(data)} of a character")


def find_unfinished(text: bytes) -> bytes:
    """Returns the bytes of an incomplete character at the end of the text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(text)
    return decoder.getstate()[0]
