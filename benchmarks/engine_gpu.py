"""How fast, right and frugal the engine is on one GPU: real shapes with random weights, bfloat16, no server.

    python -m benchmarks.engine_gpu [--output PATH] [--only PART ...] [--limit SECONDS]

It needs a GPU, torch and transformers, and no network. It is not part of `make bench`, which measures what everybody
has: two cores and the default model.

- `right_…`: the default model chooses the tokens that it chooses on the CPU in float32.
- `memory_…`, `refusal_…`: memory does not grow with requests; one that has no memory is refused alone.
- `warm20_…`: a key in a document that the engine remembers, until its completion of 20 tokens is there. `bound_ratio_…`
  is that time, relative to reading the weights, keys and values of its passes at the speed of a copy.
- `tree_…`: a step with a healing tree beside one without. `choice_…`: mask and choice alone.
- `scale_64_…`: 64 sequences beside one. `prefill_…`: reading a text.

A part that fails leaves a note and the other figures. The report is written after each part. `--rehearse` runs
everything on the CPU with tiny shapes, to see that it runs; its report is marked, and is written only where `--output`
says.
"""

import argparse
import platform
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.measures.gpu_engine import Figures, Setting, random_engine
from benchmarks.measures.gpu_memory import measure_memory, measure_refusal
from benchmarks.measures.gpu_right import measure_right
from benchmarks.measures.gpu_speed import (
    measure_choice,
    measure_copy,
    measure_prefill,
    measure_scale,
    measure_tree,
    measure_warm,
)
from benchmarks.measures.report import (
    RESULTS_DIR,
    Row,
    Target,
    build_target_row,
    find_commit,
    find_processor,
    print_rows,
    write_report,
)

_LARGE_TOKENIZER = Path("build/large-tokenizer")
_DEFAULT_TOKENIZER = Path("models/default")


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is measured: on a device alone, or with an engine of some shape."""

    name: str
    measure: Callable[[Any], Figures]  # of a Setting, or of a RandomEngine if there is a shape
    shape: str | None = None


PARTS = (
    Part("copy", measure_copy),
    Part("choice", measure_choice),
    Part("right", measure_right),
    *(
        Part(f"{name}_{shape}", measure, shape)
        for shape in ("1_5b", "7b")
        for name, measure in (
            ("warm", measure_warm), ("tree", measure_tree), ("prefill", measure_prefill), ("scale", measure_scale)
        )
    ),
    Part("memory", measure_memory),
    Part("refusal", measure_refusal, "1_5b"),
)  # fmt: skip

TARGETS = (
    Target("right", "right_wrong_float32", "other tokens than on the CPU in float32, float32", at_most=0),
    Target("right", "right_wrong_bfloat16", "other tokens than on the CPU in float32, bfloat16", at_most=0),
    Target("memory", "memory_growth_bytes", "memory that a request leaves, bytes", at_most=100),
    Target("refusal", "refusal_keeps_engine", "a request without memory is refused, the next answered", at_least=1),
    Target("warm_1_5b", "warm20_ms_1_5b", "warm completion of 20 tokens, 1.5B, median, ms", at_most=30),
    Target("warm_7b", "warm20_ms_7b", "warm completion of 20 tokens, 7B, median, ms", at_most=100),
    Target("warm_1_5b", "bound_ratio_1_5b", "that time, relative to reading its bytes, 1.5B", at_most=1.3),
    Target("warm_7b", "bound_ratio_7b", "that time, relative to reading its bytes, 7B", at_most=1.3),
    Target("tree_1_5b", "tree_overhead_1_5b", "what the healing tree adds to a step, 1.5B", at_most=0.05),
    Target("tree_7b", "tree_overhead_7b", "what the healing tree adds to a step, 7B", at_most=0.05),
    Target("choice", "choice_us_64", "mask and choice for 64 rows, us", at_most=20),
    Target("scale_1_5b", "scale_64_1_5b", "tokens a second of 64 sequences, relative to one, 1.5B", at_least=10),
    Target("scale_7b", "scale_64_7b", "tokens a second of 64 sequences, relative to one, 7B", at_least=10),
    Target("prefill_7b", "prefill_peak_share_7b", "reading 2,000 tokens, share of 989 TFLOP/s, 7B", at_least=0.5),
)


class Report:
    """What was found so far, and why the rest was not. It is written again after each part."""

    def __init__(self, setting: Setting, path: Path | None, commit: str) -> None:
        versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
        name = torch.cuda.get_device_name() if setting.is_cuda else "REHEARSAL with tiny shapes, no figures"
        self._device = f"{name}; {find_processor()}; Python {platform.python_version()}, {versions}"
        self._is_rehearsal = setting.is_rehearsal
        self._path = path
        self._commit = commit
        self._notes: dict[str, str] = {}
        self._figures: Figures = {
            "is_rehearsal": setting.is_rehearsal,
            "large_tokenizer": setting.tokenizer == _LARGE_TOKENIZER,
        }

    def add(self, part: str, measure: Callable[[], Figures]) -> None:
        """Adds the figures of a part, or a note if it fails."""
        try:
            self._figures |= measure()
        except Exception as error:  # whatever fails, the other parts are measured
            traceback.print_exc()
            self._notes[part] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if self._path is not None:
            figures, folder = self._add_bounds(), self._path.parent
            write_report(
                self._path.stem, self._build_rows(), figures, device=self._device, folder=folder, commit=self._commit
            )

    def print(self) -> None:
        """Prints the table."""
        print_rows(self._device, self._build_rows())

    def _add_bounds(self) -> Figures:
        """The figures, and the ratios between a warm completion and the time to read its bytes."""
        found, speed = dict(self._figures), self._figures.get("copy_bytes_per_s")
        for name in ("1_5b", "7b"):
            num_bytes, ms = found.get(f"warm20_bytes_{name}"), found.get(f"warm20_ms_{name}")
            if speed and num_bytes and ms:
                found[f"bound_ratio_{name}"] = ms * speed / (1e3 * num_bytes)
        return found

    def _build_rows(self) -> list[Row]:
        """Each figure beside its target, or why there is none. In a rehearsal, nothing is met or missed."""
        figures, rows = self._add_bounds(), list[Row]()
        for target in TARGETS:
            row = dict(build_target_row(target, figures.get(target.figure)))
            row |= {"met": "rehearsal"} if self._is_rehearsal else {}
            rows.append(row | {"note": self._notes.get(target.report, "")})
        return rows


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse_options(arguments)
    if not options.rehearse and not torch.cuda.is_available():
        raise SystemExit("benchmarks.engine_gpu needs a GPU, and torch finds none here; --rehearse runs without")
    has_large = not options.rehearse and (_LARGE_TOKENIZER / "tokenizer.json").exists()
    tokenizer = options.tokenizer or (_LARGE_TOKENIZER if has_large else _DEFAULT_TOKENIZER)
    setting = Setting("cpu" if options.rehearse else "cuda", tokenizer, is_rehearsal=options.rehearse)
    output = options.output or (None if options.rehearse else RESULTS_DIR / "engine_gpu.json")
    report = Report(setting, output, options.commit or find_commit())
    ends_at = time.monotonic() + options.limit
    parts = [part for part in PARTS if not options.only or part.name in options.only]
    for shape, members in groupby(parts, key=lambda part: part.shape):
        with ExitStack() as owner:
            _measure_group(list(members), setting, shape, report, owner, ends_at)
    report.print()


def _parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where the report goes (default: benchmarks/results)")
    parser.add_argument("--only", action="append", default=[], choices=[part.name for part in PARTS], metavar="PART")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with tiny shapes")
    parser.add_argument("--limit", type=float, default=570, help="no part begins after so many seconds")
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer.json of byte-level BPE")
    parser.add_argument("--commit", help="for the report, where the copy of the repository has no history")
    return parser.parse_args(arguments)


def _measure_group(
    parts: Sequence[Part], setting: Setting, shape: str | None, report: Report, owner: ExitStack, ends_at: float
) -> None:
    """Measures parts that share an engine, which the first of them loads."""
    subjects: list[Any] = [setting] if shape is None else []
    for part in parts:

        def measure(part: Part = part) -> Figures:
            if time.monotonic() > ends_at:
                raise TimeoutError("no time was left")
            if not subjects:
                subjects.append(owner.enter_context(random_engine(setting, setting.shapes[str(shape)])))
            return part.measure(subjects[0])

        report.add(part.name, measure)


if __name__ == "__main__":
    main()
