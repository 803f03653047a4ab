"""Answers of the server, and text, in the form in which commands show them."""

import codecs
import math
import re
import unicodedata
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import regex

from inference.errors import ServerError
from inference.likely_text import LikelyText
from inference.protocol.characters import END, CharacterAnswer
from inference.protocol.completion import CompletionChunk, CompletionStats, ExplainedNode, Explanation
from lsp_server.settings import Settings

_CLUSTER = regex.compile(r"\X")
_UNDECODABLE = re.compile("([\udc80-\udcff])")  # a byte that is not UTF-8, decoded with `surrogateescape`
_SURE = 0.8  # of ten such texts, eight are right
_MARKS = {" ": "·", "\n": "⏎", "\t": "⇥"}


@dataclass(frozen=True, slots=True)
class Grapheme:
    """A part of a text that is drawn as one character: a grapheme cluster, or a single byte that is not UTF-8.

    A cluster is what a user perceives as one character: a letter with its accents, a flag, an emoji that is joined from
    several (Unicode Standard Annex 29).
    """

    chars: str  # a grapheme cluster, or one lone surrogate for a byte that is not UTF-8
    start: int  # its first byte in the text
    num_bytes: int

    @property
    def ends_line(self) -> bool:
        """True for a line feed, with or without a carriage return before it."""
        return self.chars.endswith("\n")

    @property
    def shown(self) -> str:
        """The grapheme in printable form: ⏎ for a line end, symbols for other control characters, a tab unchanged."""
        if self.ends_line:
            return "⏎"
        return self.chars if self.chars == "\t" else _show_cluster(self.chars)


def split_graphemes(data: bytes) -> Iterator[Grapheme]:
    """Yields the graphemes of a text in order. The text need not be UTF-8."""
    start = 0
    for chars in _split_clusters(data.decode(errors="surrogateescape")):
        num_bytes = len(chars.encode(errors="surrogateescape"))
        yield Grapheme(chars, start, num_bytes)
        start += num_bytes


def mark_blanks(text: str) -> str:
    """Returns the text as one printable line: blanks, tabs and line ends are marked, control characters are escaped."""
    return "".join(map(_mark_cluster, _split_clusters(text)))


def _split_clusters(text: str) -> Iterator[str]:
    return chain.from_iterable(map(_CLUSTER.findall, _UNDECODABLE.split(text)))


def _mark_cluster(cluster: str) -> str:
    if cluster == "\r\n":
        return "␍⏎"
    mark = _MARKS.get(cluster[0])
    return _show_cluster(cluster) if mark is None else mark + cluster[1:]


def _show_cluster(cluster: str) -> str:
    """Escapes the first character only, because a control character is always the first of its cluster."""
    return _show_char(cluster[0]) + cluster[1:]


def _show_char(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char


CONFIDENCE = Settings().confidence


def find_style(text_log_prob: float) -> str:
    """Returns the style of rich in which text is shown that is so likely: it fades."""
    probability = math.exp(text_log_prob)
    return "bold" if probability >= _SURE else "" if probability >= CONFIDENCE else "dim"


_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of a completion, and its last chunk, which has the statistics and the explanation."""

    text: str
    last: CompletionChunk
    likely: LikelyText = field(default_factory=LikelyText)  # with its probabilities

    @property
    def stats(self) -> CompletionStats:
        """What it has cost."""
        return self.last.stats or CompletionStats()

    @property
    def explanation(self) -> Explanation:
        """What healing did, if the request has asked for it. Raises ServerError."""
        if self.last.explanation is None:
            raise ServerError("the server sent no explanation; it may be another version of midtoken")
        return self.last.explanation


@dataclass(frozen=True, slots=True)
class ByteShare:
    """One byte that may come next."""

    shown: str  # the character that it ends, or itself as \\xNN
    note: str  # its value, and its place in a character of several bytes; empty for the end of the text
    share: float


async def read_answer(chunks: AsyncGenerator[CompletionChunk, None]) -> Answer:
    """Returns the whole answer. Cancelling the call frees the sequence on the server. Raises MidtokenError."""
    async with aclosing(chunks) as stream:
        received = [chunk async for chunk in stream]
    likely = LikelyText()
    for chunk in received:
        likely.add(chunk)
    return Answer(likely.text, received[-1], likely)


def check_kind(answer: CharacterAnswer, kind: type[_Kind]) -> _Kind:
    """Returns the answer, whose kind the request determines. Raises ServerError for another kind."""
    if not isinstance(answer, kind):
        raise ServerError("the server answered a request of another kind; it may be another version of midtoken")
    return answer


def compute_shares(nodes: Sequence[ExplainedNode]) -> tuple[float | None, ...]:
    """Returns for each node the share of its crossing in the mass of all; None for a node without a crossing."""
    masses = [node.log_mass for node in nodes if node.log_mass is not None]
    largest = max(masses, default=0.0)
    total = largest + math.log(sum(math.exp(mass - largest) for mass in masses) or 1.0)
    return tuple(None if node.log_mass is None else math.exp(node.log_mass - total) for node in nodes)


def rank_bytes(probabilities: Sequence[float], text: bytes, num_bytes: int) -> list[ByteShare]:
    """Returns the bytes that are the most likely after the text, most likely first; none that cannot follow."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(text)
    unfinished = decoder.getstate()[0]  # the bytes of an incomplete character at the end of the text
    ranked = sorted(range(len(probabilities)), key=lambda byte: -probabilities[byte])[:num_bytes]
    return [ByteShare(*_name(byte, unfinished), probabilities[byte]) for byte in ranked if probabilities[byte] > 0]


def _name(byte: int, unfinished: bytes) -> tuple[str, str]:
    if byte == END:
        return "end of text", ""
    data, code = unfinished + bytes([byte]), f"0x{byte:02x}"
    if byte < 0x80:
        return mark_blanks(chr(byte)), code
    try:
        return mark_blanks(data.decode()), f"{code}, the last of {len(data)} bytes"
    except UnicodeDecodeError:
        return f"\\x{byte:02x}", f"{code}, byte {len(data)} of a character"
