"""How fast, right and frugal the engine is on one GPU: real shapes with random weights, bfloat16, no server.

    python -m benchmarks.engine_gpu [--output PATH] [--only PART ...] [--profile NAME ...]

It needs a GPU, torch and transformers, and no network. It is not part of `make bench`, which measures what everybody
has: two cores and the default model.

- `right_…`: the default model chooses the tokens that it chooses on the CPU in float32.
- `memory_…`, `refusal_…`: memory does not grow with requests; one that has no memory is refused alone.
- `warm20_…`: a key in a document that the engine remembers, until its completion of 20 tokens is there. `bound_ratio_…`
  is that time, relative to reading the weights, keys and values of its passes at the speed of a copy.
- `seconds_…`: what a part took, with the load of its model if it is the first of its group.
- `tree_…`: a step with a healing tree beside one without. `choice_…`: mask and choice alone.
- `scale_64_…`: 64 sequences beside one. `prefill_…`: reading a text. `transformers_…`: beside transformers' generation.

Each group of parts has a process with a limit of time; what fails or is too late leaves a note and the other figures.
The report is written after each part. `--profile` writes the longest kernels of an action and the number of its
launches beside the report. `--rehearse` runs everything on the CPU with tiny shapes, to see that it runs; its report is
marked, and is written only where `--output` says.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import torch

from benchmarks.measures.gpu.group import REHEARSAL
from benchmarks.measures.gpu.parts import LOAD_S, PARTS, Part, Results, find_parts
from benchmarks.measures.gpu.profiles import PROFILES
from benchmarks.measures.gpu.targets import add_bounds, build_rows
from benchmarks.measures.report import RESULTS_DIR, find_commit, print_rows, write_report

_GROUP = "benchmarks.measures.gpu.group"
_LARGE_TOKENIZER = Path("build/large-tokenizer")
_DEFAULT_TOKENIZER = Path("models/default")
_LIMIT_S = 570
_PROFILE_S = 60
_POLL_S = 0.5


class Report:
    """What was found so far. It is written again after each part."""

    def __init__(self, path: Path | None, commit: str, tokenizer: Path, *, is_rehearsal: bool) -> None:
        self._path = path
        self._commit = commit
        self._is_rehearsal = is_rehearsal
        self._device = "unknown"
        self._results = Results(
            {"is_rehearsal": is_rehearsal, "large_tokenizer": tokenizer.resolve() == _LARGE_TOKENIZER.resolve()}
        )
        self._results.notes["vllm"] = explain_no_vllm()

    def note(self, part: str, reason: str) -> None:
        """Says why a part has no figures, unless it has said so itself."""
        self._results.notes.setdefault(part, reason)

    def add(self, result: Path) -> None:
        """Adds what a process has saved, and writes the report."""
        content = json.loads(result.read_text())
        self._device = content["device"]
        self._results.figures |= content["figures"]
        self._results.notes |= content["notes"]
        self.write()

    def write(self) -> None:
        """Writes the report, if there is a path."""
        if self._path is not None:
            figures = add_bounds(self._results.figures)
            rows = build_rows(figures, self._results.notes, is_rehearsal=self._is_rehearsal)
            write_report(
                self._path.stem, rows, figures, device=self._device, folder=self._path.parent, commit=self._commit
            )

    def print(self) -> None:
        """Prints the table."""
        figures = add_bounds(self._results.figures)
        title = "REHEARSAL: these are no figures" if self._is_rehearsal else self._device
        print_rows(title, build_rows(figures, self._results.notes, is_rehearsal=self._is_rehearsal))


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse_options(arguments)
    if not options.rehearse and not torch.cuda.is_available():
        raise SystemExit("benchmarks.engine_gpu needs a GPU, and torch finds none here; --rehearse runs without")
    ends_at = time.monotonic() + options.limit
    tokenizer = _choose_tokenizer(options)
    output = options.output or (None if options.rehearse else RESULTS_DIR / "engine_gpu.json")
    report = Report(output, options.commit or find_commit(), tokenizer, is_rehearsal=options.rehearse)
    device = REHEARSAL if options.rehearse else "cuda"
    parts = find_parts(options.only) if options.only or not options.profile else []
    with tempfile.TemporaryDirectory(prefix="midtoken-gpu-") as folder:
        for group, members in groupby(parts, key=lambda part: part.group):
            result = Path(folder) / f"{group}.json"
            _measure_group(report, list(members), [str(result), device, str(tokenizer)], ends_at)
        for name in options.profile:
            result = Path(folder) / f"profile_{name}.json"
            _profile(output, name, [str(result), device, str(tokenizer)], ends_at)
    if parts:
        report.write()
        report.print()


def _parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where the report goes (default: benchmarks/results)")
    parser.add_argument("--only", action="append", default=[], choices=[part.name for part in PARTS], metavar="PART")
    parser.add_argument("--profile", action="append", default=[], choices=PROFILES, metavar="NAME")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with tiny shapes")
    parser.add_argument("--limit", type=float, default=_LIMIT_S, help="seconds in all (default: %(default)s)")
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer.json of byte-level BPE")
    parser.add_argument("--commit", help="for the report, where the copy of the repository has no history")
    return parser.parse_args(arguments)


def _choose_tokenizer(options: argparse.Namespace) -> Path:
    """The tokenizer of 151,643 tokens if it was made; else, and in a rehearsal, that of the default model."""
    if options.tokenizer is not None:
        return Path(options.tokenizer)
    is_large = not options.rehearse and (_LARGE_TOKENIZER / "tokenizer.json").exists()
    return _LARGE_TOKENIZER if is_large else _DEFAULT_TOKENIZER


def explain_no_vllm() -> str:
    """Why there are no figures of vLLM."""
    is_there = importlib.util.find_spec("vllm") is not None
    return "no comparison with vLLM is written yet" if is_there else "vllm cannot be imported here"


def _measure_group(report: Report, parts: list[Part], arguments: list[str], ends_at: float) -> None:
    """Measures the parts in a process of their own, and adds each of them when it is there."""
    result, names = Path(arguments[0]), [part.name for part in parts]
    limit_s = min(LOAD_S + 1.5 * sum(part.budget_s for part in parts), ends_at - time.monotonic())
    began_at = time.monotonic()
    reason = _run([*arguments, "parts", *names], limit_s, lambda: report.add(result))
    print(f"{', '.join(names)}: {time.monotonic() - began_at:.0f} s", flush=True)
    done = json.loads(result.read_text())["done"] if result.exists() else []
    for name in names:
        if name not in done:
            report.note(name, reason or "its process ended without a result")


def _profile(output: Path | None, name: str, arguments: list[str], ends_at: float) -> None:
    """Writes the profile beside the report, or prints it."""
    result = Path(arguments[0])
    reason = _run([*arguments, "profile", name], min(_PROFILE_S, ends_at - time.monotonic()), lambda: None)
    if not result.exists():
        print(f"no profile of {name}: {reason}", flush=True)
    elif output is None:
        print(json.loads(result.read_text())["profile"])
    else:
        path = output.with_name(f"{output.stem}_profile_{name}.txt")
        path.write_text(json.loads(result.read_text())["profile"])
        print(f"profile of {name}: {path}", flush=True)


def _run(arguments: list[str], limit_s: float, on_saved: Callable[[], None]) -> str | None:
    """Runs a process, and calls `on_saved` when it has written its result. Returns why it did not end well."""
    if limit_s <= 0:
        return "no time was left"
    result, seen, ends_at = Path(arguments[0]), 0, time.monotonic() + limit_s
    process = subprocess.Popen([sys.executable, "-m", _GROUP, *arguments], process_group=0)
    try:
        while True:
            is_over = process.poll() is not None or time.monotonic() > ends_at
            written = result.stat().st_mtime_ns if result.exists() else 0
            if written != seen:
                seen = written
                on_saved()
            if is_over:
                break
            time.sleep(_POLL_S)
        if process.returncode is None:
            return f"not done after {limit_s:.0f} s"
        return None if process.returncode == 0 else f"the process ended with code {process.returncode}"
    finally:
        if process.poll() is None:  # with the processes that it has started, such as a compiler's
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    main()
