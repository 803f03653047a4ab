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
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.progress import track

from benchmarks.baselines.contestants.line_protocol import Contestant, Request
from benchmarks.baselines.gguf_file import Precision, write_gguf
from benchmarks.corpora.visits import Visit, draw_visits
from benchmarks.measures.contest import Outcome, Runs, build_figures, build_row, draw
from benchmarks.measures.report import print_rows, write_report
from models.training.corpus import iter_held_out

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
        write_report("contestants", rows, build_figures(rows), draw(rows))
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
    ours, llama_cpp, transformers = Path(sys.executable), _find_python("llama_cpp"), _find_python("transformers")
    f16, q8_0 = (_convert(model_dir, precision) for precision in (Precision.F16, Precision.Q8_0))
    folder = str(model_dir)
    entries = [
        Entry(_OURS, ours, "midtoken_engine", (folder,)),
        Entry("midtoken_grpc", ours, "midtoken_server", (folder,)),
        Entry("midtoken_suffix", ours, "midtoken_engine", (folder,), has_suffix=True),
        Entry("llama_cpp_f16", llama_cpp, "llama_cpp_loop", (f16,)),
        Entry("llama_cpp_q8_0", llama_cpp, "llama_cpp_loop", (q8_0,)),
        Entry("guidance", llama_cpp, "guidance_gen", (f16,)),
        Entry("transformers", transformers, "transformers_generate", (folder,)),
        Entry("transformers_healing", transformers, "transformers_generate", (folder, "--healing")),
    ]
    return [entry for entry in entries if only is None or entry.name in (_OURS, *only)]


def _find_python(name: str) -> Path:
    ready = _FOLDER / name / ".ready"
    if not ready.exists():
        raise SystemExit(f"{ready} is missing: make {ready}")
    return ready.parent.absolute() / "bin" / "python"


def _convert(model_dir: Path, precision: Precision) -> str:
    path = _FOLDER / f"{model_dir.name}-{precision}.gguf"
    write_gguf(model_dir, path, precision)
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


if __name__ == "__main__":
    main()
