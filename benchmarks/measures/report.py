"""Writes the results of a benchmark: a table on the screen, and `benchmarks/results/NAME.json`."""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

Value = str | float | bool | None
Row = Mapping[str, Value]
Figures = Mapping[str, Value]

RESULTS_DIR = Path(__file__).parents[1] / "results"


class Outcome(StrEnum):
    """What became of something that must be right, or be refused with its reason."""

    RIGHT = "right"
    REFUSED = "refused"
    WRONG = "wrong"
    IMPOSSIBLE = "impossible"  # the library to compare with cannot do it either


@dataclass(frozen=True, slots=True)
class Target:
    """The lowest and the highest value that a figure should have."""

    figure: str
    meaning: str
    at_least: float = -math.inf
    at_most: float = math.inf

    def build_row(self, figures: Figures) -> Row:
        """The figure beside its limit."""
        value, low, high = figures.get(self.figure), self.at_least, self.at_most
        is_met = low <= value <= high if isinstance(value, int | float) else None
        return {
            "figure": self.meaning,
            "target": f"≥ {_format(low)}" if math.isinf(high) else f"≤ {_format(high)}",
            "measured": value,
            "met": None if is_met is None else "yes" if is_met else "no",
        }


def run_parts(
    name: str, parts: Mapping[str, Callable[[], Figures]], targets: Sequence[Target], device: str | None = None
) -> None:
    """Measures the parts that the command line names, or all, and writes the report after each.

    Figures of other parts stay as they were, and so do those of a part that fails; then the exit status is 1.
    """
    parser = argparse.ArgumentParser(description=f"Measures {name}.")
    parser.add_argument("--output", type=Path, default=RESULTS_DIR, help="the report's folder (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[*parts], choices=parts)
    options = parser.parse_args()
    path, figures, failed = options.output / f"{name}.json", dict[str, Value](), False
    if path.exists():
        figures |= json.loads(path.read_text())["figures"]
    for part in options.only:
        try:
            figures |= parts[part]()
        except Exception:  # whatever fails, the other parts are measured
            traceback.print_exc()
            failed = True
        write_report(name, build_rows(targets, figures), figures, device, options.output)
    sys.exit(failed)


def build_rows(targets: Iterable[Target], figures: Figures) -> list[Row]:
    """The figures beside their limits."""
    return [target.build_row(figures) for target in targets]


def write_report(
    name: str, rows: Sequence[Row], figures: Figures, device: str | None = None, folder: Path = RESULTS_DIR
) -> None:
    """Prints the rows, a table for those with the same columns, and writes `NAME.json`.

    `figures` are the numbers that are compared with targets; None means not measured. `device` is the device that was
    measured, by default this machine's processor.
    """
    for columns, some in groupby(rows, tuple):
        _print_rows(name, columns, [*some])
    folder.mkdir(exist_ok=True)
    report = {
        "commit": _find_commit(),
        "device": device or _find_processor(),
        "load": round(os.getloadavg()[0], 2),  # of the machine, to see who else used the cores
        "command": " ".join(["python", *sys.orig_argv[1:]]),
        "figures": dict(figures),
        "rows": [dict(row) for row in rows],
    }
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def _print_rows(title: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """None is shown as a dash."""
    table = Table(title=title)
    for name in columns:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(_format, row.values()))
    Console(width=Console(width=1000).measure(table).maximum).print(table)  # only a terminal wraps wide tables


def find_percentile(values: Iterable[float | None], percent: float) -> float | None:
    """Returns the value below which `percent` of the known values lie; None if no value is known."""
    known = [value for value in values if value is not None]
    return float(np.percentile(known, percent)) if known else None


def find_mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the known values; None if no value is known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def find_percent(marks: Iterable[bool | None]) -> float:
    """Returns how many of the known marks are true, in percent; 0 if no mark is known."""
    return 100 * (find_mean(marks) or 0.0)


def _find_processor() -> str:
    """Returns the processor's name and the number of its cores."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {len(names)} cores"


def _find_commit() -> str:
    """Returns the measured commit, with `+` if a file other than a result differs; `unknown` in a copy without Git."""
    if not (RESULTS_DIR.parents[1] / ".git").exists():
        return "unknown"
    changed = _run_git("status", "--porcelain", "--", ":/", ":(exclude,top)benchmarks/results")
    return _run_git("rev-parse", "HEAD") + ("+" if changed else "")


def _run_git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=RESULTS_DIR.parent, check=True, capture_output=True, text=True).stdout.strip()


def _format(value: Value) -> str:
    """Numbers with three digits below 100, as whole ones above."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return "–" if value is None else str(value)
