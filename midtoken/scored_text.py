"""A text with the surprisal of each byte, from the character-level model, and the colours in which it is shown.

There is none for low values, then yellow, orange and red. The text on them is black, so that it can be read in dark and
in light terminals.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.text import Text

from midtoken.graphemes import Grapheme, split_graphemes

_MIN_BITS, _MAX_BITS = 0.5, 16.0
# Evenly spaced in log2(bits), from _MIN_BITS to _MAX_BITS.
_STOPS = ((255, 247, 200), (255, 214, 110), (253, 164, 67), (236, 100, 70), (220, 70, 80))
_LEGEND = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_TAB_CELLS = 8


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """A line of the text, including its line end."""

    number: int  # from 1
    graphemes: tuple[Grapheme, ...]
    bits: tuple[float, ...]  # [num_graphemes]: the sum over the grapheme's bytes

    @property
    def bits_per_byte(self) -> float:
        """The mean over the line."""
        return math.fsum(self.bits) / sum(grapheme.num_bytes for grapheme in self.graphemes)


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A non-empty text and its surprisal."""

    name: str
    text: bytes
    surprisals: tuple[float, ...]  # [num_bytes] bits

    @property
    def total_bits(self) -> float:
        """The sum over the text."""
        return math.fsum(self.surprisals)

    @property
    def bits_per_byte(self) -> float:
        """The mean over the text."""
        return self.total_bits / len(self.text)

    def split_lines(self) -> Iterator[ScoredLine]:
        """Yields the lines in order."""
        graphemes: list[Grapheme] = []
        number = 1
        for grapheme in split_graphemes(self.text):
            graphemes.append(grapheme)
            if grapheme.ends_line:
                yield self._make_line(number, graphemes)
                graphemes, number = [], number + 1
        if graphemes:
            yield self._make_line(number, graphemes)

    def _make_line(self, number: int, graphemes: list[Grapheme]) -> ScoredLine:
        spans = (self.surprisals[grapheme.start : grapheme.start + grapheme.num_bytes] for grapheme in graphemes)
        return ScoredLine(number, tuple(graphemes), tuple(map(math.fsum, spans)))


_BLACK = Color.from_rgb(0, 0, 0)  # a terminal's theme may change the named colour black


def find_rgb(bits: float) -> tuple[int, int, int] | None:
    """Returns the background colour for a surprisal; None if it is below the first colour."""
    if bits < _MIN_BITS:
        return None
    place = math.log2(min(bits, _MAX_BITS) / _MIN_BITS) / math.log2(_MAX_BITS / _MIN_BITS) * (len(_STOPS) - 1)
    index = min(int(place), len(_STOPS) - 2)
    red, green, blue = (
        round(low + (high - low) * (place - index)) for low, high in zip(_STOPS[index], _STOPS[index + 1], strict=True)
    )
    return red, green, blue


def paint_line(line: ScoredLine) -> Text:
    """Returns the line with each grapheme in its colour. The line end is shown only if it has a colour."""
    text = Text()
    for grapheme, bits in zip(line.graphemes, line.bits, strict=True):
        rgb = find_rgb(bits)
        if rgb or not grapheme.ends_line:
            text.append(_expand_tab(grapheme, text), style=_find_style(rgb) if rgb else "")
    return text


def build_legend() -> Text:
    """Returns the legend of the colours."""
    legend = Text("bits for a character  ", style="dim")
    for bits in _LEGEND:
        rgb = find_rgb(bits)
        legend.append(f" {bits:g}{'+' if bits == _MAX_BITS else ''} ", style=_find_style(rgb) if rgb else "")
    return legend


def _expand_tab(grapheme: Grapheme, before: Text) -> str:
    return " " * (_TAB_CELLS - cell_len(before.plain) % _TAB_CELLS) if grapheme.chars == "\t" else grapheme.shown


@lru_cache(maxsize=1024)
def _find_style(rgb: tuple[int, int, int]) -> Style:
    return Style(color=_BLACK, bgcolor=Color.from_rgb(*rgb))
