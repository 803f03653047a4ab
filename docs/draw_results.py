"""Plots of benchmarks/results in `docs/measured.md`: `python -m docs.draw_results`."""

import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from benchmarks.measures.report import Row, read_figures, read_rows

_PICTURES = Path(__file__).parent / "pictures"
_BLUE, _GREY, _PALE = "#2b6cb0", "#909090", "#63a4e0"
_PARTS = {  # of a key's time, and their names in the report
    "model": "model",
    "language server": "language server",
    "gRPC and Triton": "wire",
    "engine": "engine",
    "healing": "healing",
    "queue": "queue",
    "choice of tokens": "choice",
}


def main() -> None:
    """Draws all."""
    matplotlib.rcParams |= {
        "svg.hashsalt": "midtoken",
        "svg.fonttype": "none",
        "font.size": 10,
        "font.family": "DejaVu Sans",
    }
    pictures = {
        "accuracy": _draw_accuracy(read_rows("accuracy")),
        "keystrokes-saved": _draw_saved(read_figures("typing")),
        "latency": _draw_latency(read_rows("keystrokes")[0]),
    }
    for name, figure in pictures.items():
        figure.savefig(_PICTURES / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})


def _start(axes: Axes, title: str, x_label: str) -> Axes:
    axes.set_title(title, loc="left", size=10, weight="bold")
    axes.set_xlabel(x_label)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _draw_accuracy(rows: Sequence[Row]) -> Figure:
    """A line for each strategy: identifiers right, by the characters typed."""
    by_offset = [row for row in rows if str(row.get("cursors", "")).startswith("after ")]
    offsets = [int(str(row["cursors"]).split()[1]) for row in by_offset]
    axes = _start((figure := Figure(figsize=(7, 3))).subplots(), "identifiers completed correctly", "characters typed")
    names = {"exact": "midtoken (exact)", "greedy": "mask at each step (greedy)", "none": "no healing"}
    for (strategy, name), colour in zip(names.items(), (_BLUE, _PALE, _GREY), strict=True):
        shares = [float(row[strategy] or 0) for row in by_offset]
        axes.plot(offsets, shares, color=colour, marker="o", label=name)
    axes.legend(loc="center", bbox_to_anchor=(0.5, 0.38), ncols=3, frameon=False)
    axes.set_ylim(0, 100)
    axes.yaxis.set_major_formatter(PercentFormatter())
    return figure


def _draw_saved(figures: dict[str, float]) -> Figure:
    """What the setting `confidence` trades: keystrokes saved, and wrong characters shown."""
    confidences = sorted(float(match[1]) for name in figures if (match := re.fullmatch(r"curve_saved_([\d.]+)", name)))
    left, right = (figure := Figure(figsize=(8, 2.6))).subplots(1, 2)
    _start(left, "keystrokes saved", "confidence").yaxis.set_major_formatter(PercentFormatter(1))
    for key, name, colour in (("saved_word", "with accept-word, too", _PALE), ("saved", "Tab only", _BLUE)):
        left.plot(
            confidences,
            [figures[f"curve_{key}_{each:g}"] for each in confidences],
            color=colour,
            marker="o",
            label=name,
        )
    left.legend(loc="lower right", frameon=False)
    left.set_ylim(0, 0.6)
    wrong = [figures[f"curve_wrong_chars_per_key_{each:g}"] for each in confidences]
    _start(right, "wrong characters shown at a keystroke", "confidence").plot(
        confidences, wrong, color=_BLUE, marker="o"
    )
    right.set_ylim(0)
    return figure


def _draw_latency(row: Row) -> Figure:
    """The mean time of each part of a keystroke that needs the server."""
    axes = _start((figure := Figure(figsize=(6, 2.2))).subplots(), "where the time of a keystroke goes, mean", "ms")
    times = [float(row[key] or 0) for key in _PARTS.values()]
    axes.bar_label(axes.barh([*_PARTS], times, color=_BLUE), fmt="%.1f", padding=3)
    axes.invert_yaxis()
    return figure


if __name__ == "__main__":
    main()
