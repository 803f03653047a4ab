"""Runs the parts of a benchmark, prints what they found, and writes `benchmarks/results/NAME.json`.

The file has each part with the commit, the time, the machine and the command that measured it, because a run may
measure some parts only. It is written after each part, and after each step of a part that yields what it has so far.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar  # Any: JSON

import numpy as np

Value = str | float | bool | None
Row = Mapping[str, Value]
Figures = Mapping[str, Value]

_Item = TypeVar("_Item")

_ROOT = Path(__file__).parents[2]
RESULTS_DIR = _ROOT / "benchmarks" / "results"
SHORT_DIR = _ROOT / "build" / "short"
_TRACK_S = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """The lowest and the highest value that a figure should have."""

    figure: str
    meaning: str
    at_least: float = -math.inf
    at_most: float = math.inf

    def is_met(self, value: Value) -> bool | None:
        """Whether the value is within the limits; None if it was not measured."""
        return self.at_least <= value <= self.at_most if isinstance(value, int | float) else None

    @property
    def limit(self) -> str:
        """The limit as people read it."""
        return f"≥ {format_value(self.at_least)}" if math.isinf(self.at_most) else f"≤ {format_value(self.at_most)}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a part has found: figures, which pages and targets name, and rows for its tables."""

    figures: Figures
    rows: Sequence[Row] = ()


class UnavailableError(Exception):
    """What a part needs is not on this machine. The part is left out, which is no failure."""


# A part is called with whether it is to be short: at most about a minute, to see that it runs. One that yields is
# written after each step; each step has all that was found so far.
Part = Callable[[bool], Figures | Iterable[Measured]]


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which code was measured, when, and where."""

    commit: str  # with `+` if a file other than a result differs; `unknown` in a copy without Git
    date: str
    load: float  # of the machine before the part began, to see who else used the cores
    device: str
    command: str

    @classmethod
    def take(cls, device: str | None = None) -> "Stamp":
        """Returns the stamp of what begins now. `device`: what is measured, by default this machine's processor."""
        return cls(
            _find_commit(),
            datetime.now(UTC).isoformat(timespec="seconds"),
            round(os.getloadavg()[0], 2),
            device or _find_processor(),
            " ".join(["python", *sys.orig_argv[1:]]),
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The file of a benchmark. `parts` are all that its code can measure; others are dropped from the file."""

    name: str
    parts: Sequence[str]
    targets: Sequence[Target] = ()
    folder: Path = field(default=RESULTS_DIR)

    def write(self, part: str, found: Measured, stamp: Stamp) -> None:
        """Writes what a part has found. Other parts keep their figures and stamps."""
        self.folder.mkdir(parents=True, exist_ok=True)
        old = _read(self.folder / f"{self.name}.json")
        stamped = {name: getattr(stamp, name) for name in Stamp.__slots__}
        new = stamped | {"figures": dict(found.figures), "rows": [dict(row) for row in found.rows]}
        parts = {name: new if name == part else old.get(name) for name in self.parts}
        kept = {name: each for name, each in parts.items() if each is not None}
        figures = _merge_figures(kept)
        targets = [
            {"figure": each.figure, "meaning": each.meaning, "limit": each.limit, "value": figures.get(each.figure),
             "is_met": each.is_met(figures.get(each.figure))}
            for each in self.targets
        ]  # fmt: skip
        text = json.dumps({"parts": parts, "targets": targets}, indent=1, ensure_ascii=False) + "\n"
        new_path = self.folder / f".{self.name}.json"
        new_path.write_text(text)
        new_path.replace(self.folder / f"{self.name}.json")

    def print(self, part: str, found: Measured) -> None:
        """Prints the rows of a part, its figures, and what it says of the targets."""
        for row in found.rows:
            print(f"{self.name}: {part}: {_join(row)}", flush=True)
        print(f"{self.name}: {part}: {_join(found.figures)}", flush=True)
        for each in self.targets:
            if each.is_met(found.figures.get(each.figure)) is False:
                value = format_value(found.figures[each.figure])
                print(f"missed: {each.meaning}: {value} ({each.limit})", flush=True)


def _join(values: Mapping[str, Value]) -> str:
    return "; ".join(f"{name} {format_value(value)}" for name, value in values.items())


def run_parts(name: str, parts: Mapping[str, Part], targets: Sequence[Target] = (), device: str | None = None) -> None:
    """Measures the parts that the command line names, or all, writes each as it ends, and ends the process.

    A part that fails keeps its old figures, with their stamp, and the exit status is 1. A short run compares with no
    target, and writes into a folder of its own.
    """
    parser = argparse.ArgumentParser(description=f"Measures {name}.")
    parser.add_argument("--output", type=Path, help=f"the report's folder (default: {RESULTS_DIR}; short: {SHORT_DIR})")
    parser.add_argument("--only", nargs="+", default=[*parts], choices=parts, metavar="PART", help=", ".join(parts))
    parser.add_argument("--short", action="store_true", help="only see that it runs, in about a minute")
    options = parser.parse_args()
    os.environ["XDG_DATA_HOME"] = str(Path("build/data").absolute())  # the bundled model, whatever a person has chosen
    folder = options.output or (SHORT_DIR if options.short else RESULTS_DIR)
    if options.short and folder.resolve() == RESULTS_DIR.resolve():
        parser.error("a short run measures nothing that belongs into benchmarks/results")
    report = Report(name, [*parts], () if options.short else targets, folder)
    failed = []
    for part in options.only:
        print(f"{name}: {part}", flush=True)
        stamp, started_at = Stamp.take(device), time.monotonic()
        try:
            result = parts[part](options.short)
            for found in [Measured(result)] if isinstance(result, Mapping) else result:
                report.write(part, found, stamp)
                report.print(part, found)
        except UnavailableError as error:
            print(f"{name}: {part} is left out: {error}", flush=True)
        except Exception:  # whatever fails, the other parts are measured
            traceback.print_exc()
            failed.append(part)
        print(f"{name}: {part} took {time.monotonic() - started_at:.0f} s", flush=True)
    sys.exit(f"{name}: failed: {', '.join(failed)}" if failed else 0)


def read_parts(name: str, folder: Path = RESULTS_DIR) -> dict[str, dict[str, Any]]:
    """Returns the parts of a benchmark's file: stamp, figures and rows of each; none if there is no file."""
    return _read(folder / f"{name}.json")


def is_complete(name: str, folder: Path = RESULTS_DIR) -> bool:
    """Returns whether each part of a benchmark was measured, if any was."""
    path = folder / f"{name}.json"
    return path.exists() and None not in json.loads(path.read_text())["parts"].values()


def read_figures(name: str, folder: Path = RESULTS_DIR) -> dict[str, Any]:
    """Returns the figures of all parts."""
    return _merge_figures(read_parts(name, folder))


def read_rows(name: str, folder: Path = RESULTS_DIR) -> list[dict[str, Any]]:
    """Returns the rows of all parts."""
    return [*chain.from_iterable(part["rows"] for part in read_parts(name, folder).values())]


def read_targets(name: str, folder: Path = RESULTS_DIR) -> list[dict[str, Any]]:
    """Returns the targets of a benchmark, as they were when it was last measured."""
    return [*json.loads((folder / f"{name}.json").read_text())["targets"]]


def _read(path: Path) -> dict[str, dict[str, Any]]:
    parts = json.loads(path.read_text())["parts"] if path.exists() else {}
    return {name: part for name, part in parts.items() if part is not None}


def _merge_figures(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts.values() for name, value in part["figures"].items()}


def track(items: Sequence[_Item], title: str) -> Iterator[_Item]:
    """Yields the items, and prints every ten seconds how many are done, in a log file, too."""
    printed_at = time.monotonic()
    for number, item in enumerate(items):
        if time.monotonic() - printed_at > _TRACK_S:
            printed_at = time.monotonic()
            print(f"{title}: {number} of {len(items)}", flush=True)
        yield item


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
    if not (_ROOT / ".git").exists():
        return "unknown"
    commands = (["rev-parse", "HEAD"], ["status", "--porcelain", "--", ":/", ":(exclude,top)benchmarks/results"])
    commit, changed = (subprocess.check_output(["git", *each], cwd=_ROOT, text=True).strip() for each in commands)
    return commit + ("+" if changed else "")


def format_value(value: Value) -> str:
    """Returns what people read: numbers with three digits below 100, as whole ones above."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return "–" if value is None else str(value)
