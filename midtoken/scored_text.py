"""A text with the surprisal of each character, and the colours in which it is shown.

There is none for low values, then yellow, orange and red. The text on them is black, so that it can be read in dark and
in light terminals.
"""

import math
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from midtoken.graphemes import Grapheme, split_graphemes

ScoredLine = Sequence[tuple[Grapheme, float]]  # with its line end, and for each grapheme the sum over its bytes

# By the bits from which on they are used. In full, because a terminal's theme may change the named colour black.
_STYLES = {
    16.0: "#000000 on #dc4650",
    8.0: "#000000 on #e65c4c",
    4.0: "#000000 on #f4844a",
    2.0: "#000000 on #fdb24c",
    1.0: "#000000 on #ffdd7c",
    0.5: "#000000 on #fff7c8",
}
_TAB_CELLS = 8


def score_lines(text: bytes, surprisals: Sequence[float]) -> Iterator[ScoredLine]:
    """Yields the lines in order. `surprisals`: of each byte, in bits."""
    line: list[tuple[Grapheme, float]] = []
    for grapheme in split_graphemes(text):
        line.append((grapheme, math.fsum(surprisals[grapheme.start : grapheme.start + grapheme.num_bytes])))
        if grapheme.ends_line:
            yield line
            line = []
    if line:
        yield line


def find_style(bits: float) -> str:
    """Returns the style for a surprisal; empty if it is below the first colour."""
    return next((style for lowest, style in _STYLES.items() if bits >= lowest), "")


def paint_line(line: ScoredLine) -> Text:
    """Returns the line with each grapheme in its colour. The line end is shown only if it has a colour."""
    text = Text()
    for grapheme, bits in line:
        style = find_style(bits)
        if style or not grapheme.ends_line:
            text.append(_expand_tab(grapheme, text), style)
    return text


def build_legend() -> Text:
    """Returns the legend of the colours."""
    steps = ((f" {bits:g}+ ", style) for bits, style in reversed(_STYLES.items()))
    return Text.assemble(("bits for a character  ", "dim"), *steps)


def _expand_tab(grapheme: Grapheme, before: Text) -> str:
    return " " * (_TAB_CELLS - cell_len(before.plain) % _TAB_CELLS) if grapheme.chars == "\t" else grapheme.shown
