"""A picture of surprisal: a bar for each character of a short text, for each line of a long one."""

import math
import warnings
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from inference.errors import MidtokenError
from midtoken.display.glyphs import Glyph, mark_blanks
from midtoken.display.heat import find_rgb
from midtoken.display.reading import Reading

_ROW_GLYPHS = 60
_MAX_ROWS = 6  # longer texts are drawn by lines
_FAINT = (0.82, 0.82, 0.82)
_IMPOSSIBLE_BITS = 32.0  # how high a bar is drawn that would have no end
_Color = tuple[float, float, float]


def draw_surprisals(reading: Reading, path: Path) -> None:
    """Writes the picture; its format is that of the path's ending. Raises MidtokenError where it cannot."""
    lines = list(reading.split_lines())
    glyphs = [glyph for line in lines for glyph in line.glyphs]
    if len(glyphs) <= _ROW_GLYPHS * _MAX_ROWS:
        figure = _draw_glyphs(glyphs, [bits for line in lines for bits in line.bits])
    else:
        figure = _draw_lines([line.bits_per_byte for line in lines], reading.bits_per_byte)
    title = f"{reading.name}: {reading.bits_per_byte:.3f} bits for a byte"
    figure.suptitle(title, fontsize="medium", parse_math=False)
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # characters that its font does not have
            figure.savefig(path, bbox_inches="tight")
    except OSError as error:
        raise MidtokenError(f"cannot write {path}: {error.strerror}") from None


def _draw_glyphs(glyphs: Sequence[Glyph], bits: Sequence[float]) -> Figure:
    num_rows = math.ceil(len(glyphs) / _ROW_GLYPHS)
    figure = Figure(figsize=(12, 1.5 * num_rows + 0.5), layout="constrained")
    all_axes = figure.subplots(num_rows, squeeze=False)[:, 0]
    highest = max(map(_limit, bits))
    for row, axes in enumerate(all_axes):
        span = slice(row * _ROW_GLYPHS, (row + 1) * _ROW_GLYPHS)
        labels = [mark_blanks(glyph.chars.replace("\r\n", "\n")) for glyph in glyphs[span]]
        axes.bar(range(len(labels)), list(map(_limit, bits[span])), color=list(map(_find_color, bits[span])))
        axes.set_xticks(range(len(labels)), labels, family="monospace", fontsize="small")
        axes.tick_params("x", length=0)
        axes.set(xlim=(-1, _ROW_GLYPHS), ylim=(0, highest * 1.05), ylabel="bits")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_lines(bits: Sequence[float], mean: float) -> Figure:
    figure = Figure(figsize=(12, 4), layout="constrained")
    axes = figure.subplots()
    axes.bar(range(1, len(bits) + 1), list(map(_limit, bits)), width=1.0, color=list(map(_find_color, bits)))
    axes.axhline(_limit(mean), color="black", linewidth=0.8, linestyle="--", label="mean")
    axes.set(xlim=(0.5, len(bits) + 0.5), xlabel="line", ylabel="bits for a byte")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _limit(bits: float) -> float:
    return min(bits, _IMPOSSIBLE_BITS)


def _find_color(bits: float) -> _Color:
    rgb = find_rgb(bits)
    if rgb is None:
        return _FAINT
    red, green, blue = rgb
    return red / 255, green / 255, blue / 255
