"""What the rows of `make test-reliability` share: their form, their targets, and the report.

Each row is a file in `tests/reliability`. Its short form is a part of `make test`: it asserts that nothing is wrong or
lost, but compares no time. The full form (`--reliability=full`) also writes its figures to
`benchmarks/results/reliability.json`, beside the targets.
"""

import fcntl
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TypeVar

from benchmarks.measures.report import Figures, Measured, Report, Row, Stamp, Target

_Value = TypeVar("_Value")

_NUM_PROCESSES = 2

_RUNTIMES = ("triton", "embedded")
_WORLDS = ("own_triton", "own_embedded", "remote_triton", "remote_embedded", "engine_embedded")
PARTS = (
    *(f"faults_{world}" for world in _WORLDS),
    *("_".join(each) for each in product(("cancels", "overload", "shutdown", "isolation"), _RUNTIMES)),
    *("races", "lsp", "isolation", "texts", "http", "grpc"),
)


def _list_for(names: Sequence[str], *targets: Target) -> Iterator[Target]:
    """The targets for each of what was measured."""
    for each, name in product(targets, names):
        yield replace(each, figure=f"{each.figure}_{name}", meaning=f"{each.meaning} ({name.replace('_', ', ')})")


TARGETS = (
    *_list_for(
        _WORLDS,
        Target("faults_echo_ms_p99", "until a key is echoed while the server is broken, 99 of 100, ms", at_most=50),
        Target("faults_wrong_texts", "wrong texts during and after faults", at_most=0),
        Target("faults_back_s_max", "until completions are back after a fault, s", at_most=5),
        Target("faults_never_back", "faults after which completions did not come back", at_most=0),
    ),
    *_list_for(
        _RUNTIMES,
        Target("cancels_unreleased", "cancelled requests that the server did not release", at_most=0),
        Target("cancels_stuck", "requests without an end beside cancelled ones", at_most=0),
        Target("cancels_refused", "requests wrongly refused beside cancelled ones", at_most=0),
        Target("overload_completed_1_3", "completed at 1.3 × capacity, relative to the capacity", at_least=0.9),
        Target("overload_completed_3", "completed at 3 × capacity, relative to the capacity", at_least=0.9),
        Target("overload_completed_10", "completed at 10 × capacity, relative to the capacity", at_least=0.9),
        Target("overload_refused_ms_p99", "until a request is refused, 99 of 100, ms", at_most=50),
        Target("overload_growth_mib", "growth of memory under overload, MiB", at_most=16),
        Target("shutdown_untold", "of 50 streams at a shutdown, neither finished nor told", at_most=0),
        Target("shutdown_s", "until the last of 50 streams has its end, s", at_most=5),
        Target("shutdown_orphans", "processes and files that remain after a shutdown", at_most=0),
    ),
    Target("races_wrong", "answers for a text that is gone, none or several, of random orders of events", at_most=0),
    Target("lsp_wrong", "requests among LSP frames without exactly one answer, and servers that died", at_most=0),
    Target(
        "isolation_foreign",
        "words of other users in answers, errors or logs, or costs that tell of them",
        at_most=0,
    ),
    Target("isolation_triton_foreign", "the same in front of the bundled model, with metrics", at_most=0),
    Target("isolation_embedded_foreign", "the same without Triton", at_most=0),
    Target("texts_wrong", "suggestions that are not what a scripted model wrote", at_most=0),
    Target("http_wrong", "answers to changed requests of editors: defects, none, without the field's name", at_most=0),
    Target("http_longest_s", "until such an answer, at most, s", at_most=1),
    Target("grpc_wrong", "the same of messages to the embedded gRPC service", at_most=0),
    Target("grpc_longest_s", "until such an answer, at most, s", at_most=1),
    Target("lsp_longest_s", "time of the processor for one LSP frame, at most, s", at_most=1),
)


@dataclass(slots=True)
class Found:
    """What was wrong, and what else was found."""

    problems: list[str] = field(default_factory=list)
    num: int = 0  # of what was compared
    longest_s: float = 0.0

    def add(self, other: "Found") -> None:
        """Adds what was found elsewhere."""
        self.problems += other.problems
        self.num += other.num
        self.longest_s = max(self.longest_s, other.longest_s)


@dataclass(frozen=True, slots=True)
class Reliability:
    """The form in which the rows run, and where the full form reports."""

    is_full: bool
    results_dir: Path

    def choose(self, short: _Value, full: _Value) -> _Value:
        """The value for this form."""
        return full if self.is_full else short

    def measure(self, measure: Callable[[int, int], Found], short: int, full: int) -> tuple[int, Found]:
        """What `measure(num, seed)` finds, and `num`; in the full form in two processes, each with half of it."""
        found = Found()
        if not self.is_full:
            return short, measure(short, 1)
        with ProcessPoolExecutor(_NUM_PROCESSES, multiprocessing.get_context("spawn")) as pool:
            for part in pool.map(measure, [full // _NUM_PROCESSES] * _NUM_PROCESSES, range(_NUM_PROCESSES)):
                found.add(part)
        return full, found

    def record(self, part: str, figures: Figures, problems: Sequence[str] = (), rows: Sequence[Row] = ()) -> None:
        """Writes to the report what a part has measured, one of `PARTS`. The short form writes nothing.

        Asserts that there are no problems.
        """
        if self.is_full:
            assert part in PARTS
            report, found = Report("reliability", PARTS, TARGETS, self.results_dir), Measured(figures, rows)
            with _lock(self.results_dir):
                report.write(part, found, Stamp.take())
            report.print(part, found)
        assert not problems, "\n".join([f"{len(problems)} problems", *problems[:10]])

    def record_of(self, world: str, part: str, figures: Figures, rows: Sequence[Row] = ()) -> None:
        """Writes what a part has measured of one runtime, or of another world, which the figures' names end with."""
        self.record(f"{part}_{world}", {f"{name}_{world}": value for name, value in figures.items()}, (), rows)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Rows that run in several processes report one after the other."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def find_growth(sizes: Sequence[float]) -> float:
    """How much the last third is above the middle one, by their medians: what leaks grows to the end."""
    third = len(sizes) // 3
    middle, last = (sorted(part)[third // 2] for part in (sizes[third : 2 * third], sizes[-third:]))
    return last - middle
