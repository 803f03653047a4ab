"""midtoken beside other ways to complete code, with the same weights, on the same cursors, in one run.

Cursors are inside identifiers of held-out files, each with the text before it and no text after it, except in the row
`midtoken_suffix`. At each cursor every contestant gets two requests. The first is the text three keys earlier, which
nobody has read before: `cold`. The second is the text up to the cursor, when everybody's cache holds the first:
`warm`, as in typing. Each request asks for the rest of the line, greedily.

- first text: from the request to the first character after the cursor.
- line: to the end of the line, or to the limit of tokens.
- right: the completion begins with exactly the rest of the identifier.

Every contestant runs in a process of its own, with one thread and then with two, and waits while the others run.
Processes are started anew for each repeat, and the report is written after each. A time is the median over the cursors
of the median over the repeats, and its spread is that of the repeats' medians. `benchmarks/baselines/contestants/` says
what each contestant is.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import track

from benchmarks.baselines.contestants.line_protocol import Answer, Contestant, Request
from benchmarks.corpora.cuts import Visit, draw_visits
from benchmarks.measures.report import Row, print_rows, write_report
from models.training.corpus import iter_held_out

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FOLDER = Path("build/contestants")
_PAUSE_S = 0.005  # after an answer, so that threads that wait actively have gone to sleep
_OURS = "midtoken"


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant: its environment, module and arguments."""

    name: str
    python: Path
    module: str
    arguments: tuple[str, ...]
    has_suffix: bool = False

    def start(self, num_threads: int) -> Contestant:
        """Starts it with this number of threads. Raises RuntimeError if it fails."""
        command = [
            *(str(self.python), "-m", f"benchmarks.baselines.contestants.{self.module}"),
            *(*self.arguments, f"--threads={num_threads}"),
        ]
        environment = {
            "OMP_NUM_THREADS": str(num_threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        return Contestant(self.name, command, environment, _FOLDER / "logs" / f"{self.name}.log")


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


def main() -> None:
    options = _parse_options()
    entries = _build_entries(options.model.resolve(), options.only)
    visits = draw_visits(iter_held_out(), options.cursors, options.seed)
    runs: dict[tuple[str, int], Runs] = {(entry.name, count): [] for count in options.threads for entry in entries}
    for repeat in range(options.repeats):
        for num_threads in options.threads:
            for entry, outcomes in _run(entries, visits, num_threads, f"{repeat + 1}, {num_threads} threads"):
                runs[entry.name, num_threads].append(outcomes)
        rows = [build_row(name, num_threads, runs, _OURS) for name, num_threads in runs]
        write_report("contestants", rows, _build_figures(rows), _draw(rows))
        print_rows(f"The rest of the line at {len(visits)} cursors, {repeat + 1} repeats", rows)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/default"))
    parser.add_argument("--cursors", type=int, default=250)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these contestants; midtoken is always one")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _build_entries(model_dir: Path, only: Sequence[str] | None) -> list[Entry]:
    """The contestants. Raises SystemExit if an environment is missing."""
    ours, llama_cpp, transformers = Path(sys.executable), find_python("llama_cpp"), find_python("transformers")
    f16, q8_0 = (_convert(model_dir, precision) for precision in ("f16", "q8_0"))
    folder = str(model_dir)
    entries = [
        Entry(_OURS, ours, "midtoken", (folder,)),
        Entry("midtoken_grpc", ours, "midtoken", (folder, "--server")),
        Entry("midtoken_suffix", ours, "midtoken", (folder,), has_suffix=True),
        Entry("llama_cpp_f16", llama_cpp, "llama_cpp_loop", (f16,)),
        Entry("llama_cpp_q8_0", llama_cpp, "llama_cpp_loop", (q8_0,)),
        Entry("guidance", llama_cpp, "guidance_gen", (f16,)),
        Entry("transformers", transformers, "transformers_generate", (folder,)),
        Entry("transformers_healing", transformers, "transformers_generate", (folder, "--healing")),
    ]
    return [entry for entry in entries if only is None or entry.name in (_OURS, *only)]


def find_python(name: str) -> Path:
    """The interpreter of a contestant's environment. Raises SystemExit if it is missing."""
    ready = _FOLDER / name / ".ready"
    if not ready.exists():
        raise SystemExit(f"{ready} is missing: make {ready}")
    return ready.parent.absolute() / "bin" / "python"


def _convert(model_dir: Path, precision: str) -> str:
    from benchmarks.baselines.gguf_file import Precision, write_gguf  # here, because only `make bench-latency` has gguf

    path = _FOLDER / f"{model_dir.name}-{precision}.gguf"
    write_gguf(model_dir, path, Precision(precision))
    return str(path)


def _run(
    entries: Sequence[Entry], visits: Sequence[Visit], num_threads: int, title: str
) -> Iterator[tuple[Entry, list[Outcome]]]:
    """Starts all contestants and visits each cursor with all of them, another one first at each cursor."""
    outcomes: dict[Entry, list[Outcome]] = {entry: [] for entry in entries}
    with ExitStack() as stack:
        contestants = [(entry, stack.enter_context(entry.start(num_threads))) for entry in entries]
        for index, visit in track(list(enumerate(visits)), f"repeat {title}"):
            first = index % len(contestants)
            for entry, contestant in contestants[first:] + contestants[:first]:
                outcomes[entry].append(_visit(contestant, visit, entry.has_suffix))
    yield from outcomes.items()


def _visit(contestant: Contestant, visit: Visit, has_suffix: bool) -> Outcome:
    suffix = visit.suffix if has_suffix else ""
    answers = []
    for text in (visit.earlier_text, visit.text):
        answers.append(contestant.complete(Request(text, suffix)))
        time.sleep(_PAUSE_S)
    return Outcome(visit, *answers)


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


def _build_figures(rows: Sequence[Row]) -> dict[str, float | bool | None]:
    """The figures for one thread; those for two threads have a name that says so."""
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


def _draw(rows: Sequence[Row]) -> "Figure":
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


if __name__ == "__main__":
    main()
