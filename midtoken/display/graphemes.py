"""A text as a terminal draws it: grapheme clusters, and single bytes where the text is not UTF-8.

A grapheme cluster is what a person takes for one character: a letter with its accents, a flag, an emoji that is joined
from several (Unicode Standard Annex 29).
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import regex

_CLUSTER = regex.compile(r"\X")
_UNDECODABLE = re.compile("([\udc80-\udcff])")  # a byte that is not UTF-8, as `surrogateescape` decodes it
_MARKS = {" ": "·", "\n": "⏎", "\t": "⇥"}


@dataclass(frozen=True, slots=True)
class Grapheme:
    """A part of a text that stands in one place on the screen."""

    chars: str  # a grapheme cluster, or one lone surrogate for a byte that is not UTF-8
    start: int  # its first byte in the text
    num_bytes: int

    @property
    def ends_line(self) -> bool:
        """True for a line feed, and for a carriage return with one."""
        return self.chars.endswith("\n")

    @property
    def shown(self) -> str:
        """What can be printed: ⏎ for the end of a line, pictures of other control characters, a tab as it is."""
        if self.ends_line:
            return "⏎"
        return self.chars if self.chars == "\t" else _show_cluster(self.chars)


def split_graphemes(data: bytes) -> Iterator[Grapheme]:
    """The graphemes of a text, in order. The text need not be UTF-8."""
    start = 0
    for chars in _split_clusters(data.decode(errors="surrogateescape")):
        num_bytes = len(chars.encode(errors="surrogateescape"))
        yield Grapheme(chars, start, num_bytes)
        start += num_bytes


def mark_blanks(text: str) -> str:
    """The text in one line that can be printed: blanks, tabs and line ends marked, other control characters escaped."""
    return "".join(map(_mark_cluster, _split_clusters(text)))


def _split_clusters(text: str) -> Iterator[str]:
    return chain.from_iterable(map(_CLUSTER.findall, _UNDECODABLE.split(text)))


def _mark_cluster(cluster: str) -> str:
    if cluster == "\r\n":
        return "␍⏎"
    mark = _MARKS.get(cluster[0])
    return _show_cluster(cluster) if mark is None else mark + cluster[1:]


def _show_cluster(cluster: str) -> str:
    """Only its first character can be one that a terminal acts on: control characters never join another cluster."""
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
