"""midtoken beside other ways to complete code, with the same weights, on the same cursors, in one run.

Cursors are inside identifiers of held-out files, each with the text before it and no text after it. At each cursor
every contestant gets two requests. The first is the text three keys earlier, which nobody has read before: `cold`. The
second is the text up to the cursor, when everybody's cache holds the first: `warm`, as in typing. Each request asks for
the rest of the line, greedily.

- first text: from the request to the first character after the cursor.
- line: to the end of the line, or to the limit of tokens.
- right: the completion begins with exactly the rest of the identifier.

Every contestant runs in a process of its own, with one thread, and waits while the others run.
Processes are started anew for each repeat, and the report is written after each. A time is the median over the cursors
of the median over the repeats. `benchmarks/baselines/contestants/` says
what each contestant is.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.baselines.contestants.line_protocol import Answer, Contestant, Request
from benchmarks.baselines.gguf_file import Precision, write_gguf
from benchmarks.corpora.cuts import Visit, draw_visits
from benchmarks.measures.report import Measured, Row, Value, find_percent, run_parts, track
from midtoken.installed import find_bundled_model
from models.training.corpus import iter_held_out

_FOLDER = Path("build/contestants")
PAUSE_S = 0.005  # after an answer, so that threads that wait actively have gone to sleep
_NUM_CURSORS, _NUM_REPEATS = 100, 3
_NUM_SHORT = 4  # cursors


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant: its environment, module and arguments."""

    name: str
    python: Path
    module: str
    arguments: tuple[str, ...]
    num_threads: int = 1

    def start(self) -> Contestant:
        """Starts it. Raises RuntimeError if it fails."""
        module = f"benchmarks.baselines.contestants.{self.module}"
        command = [str(self.python), "-m", module, *self.arguments, f"--threads={self.num_threads}"]
        environment = {
            "OMP_NUM_THREADS": str(self.num_threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        return Contestant(self.name, command, environment, _FOLDER / "logs" / f"{self.name}.log")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one contestant did at one cursor."""

    visit: Visit
    cold: Answer
    warm: Answer


Runs = list[list[Outcome]]  # one list for each repeat, in the order of the visits

TIMES: dict[str, Callable[[Outcome], float]] = {
    "first_text_ms": lambda outcome: outcome.warm.first_text_ms,
    "line_ms": lambda outcome: outcome.warm.line_ms,
    "cold_first_text_ms": lambda outcome: outcome.cold.first_text_ms,
    "cold_line_ms": lambda outcome: outcome.cold.line_ms,
}


def main() -> None:
    run_parts("contestants", {"lines": _measure})


def _measure(is_short: bool) -> Iterator[Measured]:
    visits = draw_visits(iter_held_out(), _NUM_SHORT if is_short else _NUM_CURSORS, seed=1)
    return compare(_build_entries(find_bundled_model()), visits, 1 if is_short else _NUM_REPEATS)


def compare(entries: Sequence[Entry], visits: Sequence[Visit], num_repeats: int) -> Iterator[Measured]:
    """Yields a step for each repeat, with the figures of all so far."""
    runs: dict[str, Runs] = {entry.name: [] for entry in entries}
    for repeat in range(num_repeats):
        for entry, outcomes in _run(entries, visits, f"{repeat + 1}").items():
            runs[entry.name].append(outcomes)
        rows = [_build_row(name, own) for name, own in runs.items()]
        figures = {f"{name}_{row['contestant']}": row[name] for row in rows for name in (*TIMES, "right")}
        yield Measured({"num_cursors": len(visits), **figures}, rows)


def _build_entries(model_dir: Path) -> list[Entry]:
    """The contestants. Raises SystemExit if an environment is missing."""
    ours, llama_cpp = Path(sys.executable), find_llama_cpp_python()
    f16, q8_0 = (_convert(model_dir, precision) for precision in ("f16", "q8_0"))
    folder = str(model_dir)
    return [
        Entry("midtoken", ours, "midtoken", (folder,)),
        Entry("midtoken_grpc", ours, "midtoken", (folder, "--server")),
        Entry("llama_cpp_f16", llama_cpp, "llama_cpp_python", (f16,)),
        Entry("llama_cpp_q8_0", llama_cpp, "llama_cpp_python", (q8_0,)),
        Entry("guidance", llama_cpp, "guidance_gen", (f16,)),
        Entry("transformers", ours, "transformers_generate", (folder,)),
        Entry("transformers_healing", ours, "transformers_generate", (folder, "--healing")),
    ]


def find_llama_cpp_python() -> Path:
    """The interpreter of the environment of llama.cpp and guidance. Raises SystemExit if it is missing."""
    ready = _FOLDER / "llama_cpp" / ".ready"
    if not ready.exists():
        raise SystemExit(f"{ready} is missing: make {ready}")
    return ready.parent.absolute() / "bin" / "python"


def _convert(model_dir: Path, precision: str) -> str:
    path = _FOLDER / f"{model_dir.name}-{precision}.gguf"
    write_gguf(model_dir, path, Precision(precision))
    return str(path)


def _run(entries: Sequence[Entry], visits: Sequence[Visit], title: str) -> dict[Entry, list[Outcome]]:
    """Starts all contestants and visits each cursor with all of them, another one first at each cursor."""
    outcomes: dict[Entry, list[Outcome]] = {entry: [] for entry in entries}
    with ExitStack() as stack:
        contestants = [(entry, stack.enter_context(entry.start())) for entry in entries]
        for index, visit in track([*enumerate(visits)], f"repeat {title}"):
            first = index % len(contestants)
            for entry, contestant in contestants[first:] + contestants[:first]:
                outcomes[entry].append(_visit(contestant, visit))
    return outcomes


def _visit(contestant: Contestant, visit: Visit) -> Outcome:
    answers = []
    for text in (visit.earlier_text, visit.text):
        answers.append(contestant.complete(Request(text)))
        time.sleep(PAUSE_S)
    return Outcome(visit, *answers)


def _build_row(name: str, runs: Runs) -> Row:
    row: dict[str, Value] = {"contestant": name}
    for figure, read in TIMES.items():
        by_cursor = zip(*([read(outcome) for outcome in run] for run in runs), strict=True)
        row[figure] = statistics.median(map(statistics.median, by_cursor))
    return row | {"right": find_percent(each.visit.cut.is_solved_by(each.warm.line) for each in runs[0])}


if __name__ == "__main__":
    main()
