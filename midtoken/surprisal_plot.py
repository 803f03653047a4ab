"""Draws a bar chart of surprisal: a bar for each character of a short text, or for each line of a long one."""

import math
import warnings
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from midtoken.errors import UsageError
from midtoken.graphemes import Grapheme, mark_blanks
from midtoken.scored_text import ScoredText, find_rgb

_ROW_GRAPHEMES = 60
_MAX_ROWS = 6  # longer texts get a bar for each line
_FAINT = (0.82, 0.82, 0.82)
_MAX_BITS = 32.0  # higher bars are cut here; the surprisal of an impossible byte is infinite
_Color = tuple[float, float, float]


def draw_surprisals(scored: ScoredText, path: Path) -> None:
    """Writes the picture in the format that the path's suffix names. Raises UsageError."""
    lines = list(scored.split_lines())
    graphemes = [grapheme for line in lines for grapheme in line.graphemes]
    if len(graphemes) <= _ROW_GRAPHEMES * _MAX_ROWS:
        figure = _draw_graphemes(graphemes, [bits for line in lines for bits in line.bits])
    else:
        figure = _draw_lines([line.bits_per_byte for line in lines], scored.bits_per_byte)
    title = f"{scored.name}: {scored.bits_per_byte:.3f} bits for a byte"
    figure.suptitle(title, fontsize="medium", parse_math=False)
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # characters that the font lacks
            figure.savefig(path, bbox_inches="tight")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _draw_graphemes(graphemes: Sequence[Grapheme], bits: Sequence[float]) -> Figure:
    num_rows = math.ceil(len(graphemes) / _ROW_GRAPHEMES)
    figure = Figure(figsize=(12, 1.5 * num_rows + 0.5), layout="constrained")
    all_axes = figure.subplots(num_rows, squeeze=False)[:, 0]
    highest = max(map(_limit, bits))
    for row, axes in enumerate(all_axes):
        span = slice(row * _ROW_GRAPHEMES, (row + 1) * _ROW_GRAPHEMES)
        labels = [mark_blanks(grapheme.chars.replace("\r\n", "\n")) for grapheme in graphemes[span]]
        axes.bar(range(len(labels)), list(map(_limit, bits[span])), color=list(map(_find_color, bits[span])))
        axes.set_xticks(range(len(labels)), labels, family="monospace", fontsize="small")
        axes.tick_params("x", length=0)
        axes.set(xlim=(-1, _ROW_GRAPHEMES), ylim=(0, highest * 1.05), ylabel="bits")
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
    return min(bits, _MAX_BITS)


def _find_color(bits: float) -> _Color:
    rgb = find_rgb(bits)
    if rgb is None:
        return _FAINT
    red, green, blue = rgb
    return red / 255, green / 255, blue / 255
