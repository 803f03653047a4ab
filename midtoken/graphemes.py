"""Splits a text into the units that a terminal draws: grapheme clusters, and single bytes that are not UTF-8.

A grapheme cluster is what a user perceives as one character: a letter with its accents, a flag, an emoji that is joined
from several (Unicode Standard Annex 29).
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import regex

_CLUSTER = regex.compile(r"\X")
_UNDECODABLE = re.compile("([\udc80-\udcff])")  # a byte that is not UTF-8, decoded with `surrogateescape`
_MARKS = {" ": "·", "\n": "⏎", "\t": "⇥"}


@dataclass(frozen=True, slots=True)
class Grapheme:
    """A part of a text that is drawn as one character."""

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
