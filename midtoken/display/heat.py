"""Bits as colours: from none over yellow and orange to red, black on top, so that it reads on dark and on light."""

import math
from functools import lru_cache

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.text import Text

from midtoken.display.glyphs import Glyph
from midtoken.display.reading import Line

_LEAST_BITS, _MOST_BITS = 0.5, 16.0
_STOPS = ((255, 247, 200), (255, 214, 110), (253, 164, 67), (236, 100, 70), (220, 70, 80))  # even steps in log bits
_LEGEND = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_TAB_CELLS = 8
_BLACK = Color.from_rgb(0, 0, 0)  # the named one is what a theme makes of it


def find_rgb(bits: float) -> tuple[int, int, int] | None:
    """The colour of so many bits; None for those that are too few for one."""
    if bits < _LEAST_BITS:
        return None
    place = math.log2(min(bits, _MOST_BITS) / _LEAST_BITS) / math.log2(_MOST_BITS / _LEAST_BITS) * (len(_STOPS) - 1)
    index = min(int(place), len(_STOPS) - 2)
    red, green, blue = (
        round(low + (high - low) * (place - index)) for low, high in zip(_STOPS[index], _STOPS[index + 1], strict=True)
    )
    return red, green, blue


def paint_line(line: Line) -> Text:
    """The line, each glyph in the colour of its bits. Its end shows where it has a colour."""
    text = Text()
    for glyph, bits in zip(line.glyphs, line.bits, strict=True):
        rgb = find_rgb(bits)
        if rgb or not glyph.ends_line:
            text.append(_expand(glyph, text), style=_find_style(rgb) if rgb else "")
    return text


def build_legend() -> Text:
    """What the colours mean."""
    legend = Text("bits for a character  ", style="dim")
    for bits in _LEGEND:
        rgb = find_rgb(bits)
        legend.append(f" {bits:g}{'+' if bits == _MOST_BITS else ''} ", style=_find_style(rgb) if rgb else "")
    return legend


def _expand(glyph: Glyph, before: Text) -> str:
    return " " * (_TAB_CELLS - cell_len(before.plain) % _TAB_CELLS) if glyph.chars == "\t" else glyph.shown


@lru_cache(maxsize=1024)
def _find_style(rgb: tuple[int, int, int]) -> Style:
    return Style(color=_BLACK, bgcolor=Color.from_rgb(*rgb))
