"""What contestants did at the same cursors: a row for each, figures and a picture."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.baselines.contestants.line_protocol import Answer
from benchmarks.corpora.visits import Visit
from benchmarks.measures.report import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one contestant did at one cursor."""

    visit: Visit
    cold: Answer
    warm: Answer

    @property
    def is_right(self) -> bool:
        """True if the completion begins with exactly the rest of the identifier."""
        return self.visit.cut.is_solved_by(self.warm.line)


Runs = list[list[Outcome]]  # one list for each repeat, in the order of the visits


def build_row(name: str, num_threads: int, all_runs: Mapping[tuple[str, int], Runs], ours_name: str) -> Row:
    """The row of one contestant, compared with `ours_name` at the same number of threads."""
    runs = all_runs[name, num_threads]
    warm_first = _TimeOf(runs, lambda outcome: outcome.warm.first_text_ms)
    warm_line = _TimeOf(runs, lambda outcome: outcome.warm.line_ms)
    cold_first = _TimeOf(runs, lambda outcome: outcome.cold.first_text_ms)
    cold_line = _TimeOf(runs, lambda outcome: outcome.cold.line_ms)
    ours = all_runs[ours_name, num_threads]
    return {
        "contestant": name,
        "threads": num_threads,
        "first text ms": warm_first.median,
        "± first": warm_first.spread,
        "p95 first": warm_first.p95,
        "line ms": warm_line.median,
        "± line": warm_line.spread,
        "p95 line": warm_line.p95,
        "cold first text ms": cold_first.median,
        "cold line ms": cold_line.median,
        "line chars": statistics.mean(len(outcome.warm.line) for outcome in runs[0]),
        "right %": _percent([outcome.is_right for outcome in runs[0]]),
        "to midtoken": _percent_gained(runs[0], ours[0]),
        "± (95 %)": _find_half_width(runs[0], ours[0]),
        "changed lines": _count_changed(runs),
    }


class _TimeOf:
    """One time, over the cursors and the repeats."""

    def __init__(self, runs: Runs, read: Callable[[Outcome], float]) -> None:
        times = [[read(outcome) for outcome in run] for run in runs]
        typical = [statistics.median(each) for each in zip(*times, strict=True)]  # one for each cursor
        medians = [statistics.median(each) for each in times]  # one for each repeat
        self.median = statistics.median(typical)
        self.p95 = statistics.quantiles(typical, n=20)[-1]
        self.spread = max(medians) - min(medians)


def _percent(marks: list[bool]) -> float:
    return 100 * sum(marks) / len(marks)


def _percent_gained(run: list[Outcome], ours: list[Outcome]) -> float:
    return statistics.mean(_iter_differences(run, ours))


def _find_half_width(run: list[Outcome], ours: list[Outcome]) -> float:
    """Half the width of the 95 % interval of the paired difference."""
    differences = list(_iter_differences(run, ours))
    return 1.96 * statistics.pstdev(differences) / math.sqrt(len(differences))


def _iter_differences(run: list[Outcome], ours: list[Outcome]) -> Iterator[float]:
    return (100.0 * (each.is_right - other.is_right) for each, other in zip(run, ours, strict=True))


def _count_changed(runs: Runs) -> int:
    """At how many cursors the line was not the same in all repeats."""
    return sum(len({outcome.warm.line for outcome in outcomes}) > 1 for outcomes in zip(*runs, strict=True))


def build_figures(rows: Sequence[Row]) -> dict[str, float | bool | None]:
    """The figures of issue 9, for one thread; those for two threads have a name that says so."""
    figures: dict[str, float | bool | None] = {}
    for row in rows:
        end = row["contestant"] if row["threads"] == 1 else f"{row['contestant']}_{row['threads']}_threads"
        names = {
            "first_text_ms": "first text ms", "line_ms": "line ms", "cold_first_text_ms": "cold first text ms",
            "cold_line_ms": "cold line ms", "right": "right %",
        }  # fmt: skip
        figures |= {f"{figure}_{end}": round(_number(row[name]), 3) for figure, name in names.items()}
    return figures


def _number(value: object) -> float:
    assert isinstance(value, float | int)
    return float(value)


def draw(rows: Sequence[Row]) -> "Figure":
    """Times and right completions with one thread."""
    from matplotlib.figure import Figure  # here, because only drawing needs it

    rows = [row for row in rows if row["threads"] == 1]
    places = range(len(rows))
    figure = Figure(figsize=(9, 0.42 * len(rows) + 1.2))
    times, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": (2, 1), "wspace": 0.05})
    for name, label, marker in (
        ("first text ms", "first text, warm", "o"),
        ("line ms", "whole line, warm", "s"),
        ("cold first text ms", "first text, cold", "^"),
    ):
        times.plot([_number(row[name]) for row in rows], places, marker, label=label, linestyle="none")
    times.set_xscale("log")
    times.xaxis.set_major_formatter("{x:g}")
    times.set_xlabel("ms")
    times.grid(axis="x", which="both", alpha=0.25)
    times.set_yticks(places, [str(row["contestant"]) for row in rows])
    times.invert_yaxis()
    times.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    bars = right.barh(places, [_number(row["right %"]) for row in rows], height=0.6, color="tab:gray")
    right.bar_label(bars, fmt="%.0f", padding=2)
    right.set_xlabel("right completions, %")
    right.set_xlim(0, 100)
    for axes in (times, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
