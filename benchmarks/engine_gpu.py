"""How fast and right the engine is on one GPU: real shapes with random weights, bfloat16, no server.

    python -m benchmarks.engine_gpu [--output PATH] [--only PART ...]

It needs a GPU, torch and transformers, and no network. It is not part of `make bench`, which measures what everybody
has: two cores and the default model.

- `right_…`: the default model chooses the tokens that it chooses on the CPU in float32.
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
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.measures.gpu_engine import Figures, RandomEngine, Setting, random_engine
from benchmarks.measures.gpu_right import DEFAULT_MODEL, measure_right
from benchmarks.measures.gpu_speed import measure_choice, measure_prefill, measure_scale, measure_tree, measure_warm
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

# By the shape of the engine that they need; those without a shape need a device alone. Answers are checked first.
PARTS: dict[str | None, dict[str, Callable[[Any], Figures]]] = {  # of a Setting, or of a RandomEngine
    None: {"right": measure_right, "choice": measure_choice},
    **{
        shape: {
            f"warm_{shape}": measure_warm,
            f"tree_{shape}": measure_tree,
            f"prefill_{shape}": measure_prefill,
            f"scale_{shape}": measure_scale,
        }
        for shape in ("1_5b", "7b")
    },
}

TARGETS = (
    Target("right", "right_wrong_float32", "other tokens than on the CPU in float32, float32", at_most=0),
    Target("right", "right_wrong_bfloat16", "other tokens than on the CPU in float32, bfloat16", at_most=0),
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


@dataclass(slots=True)
class Report:
    """What was found so far, and why the rest was not. It is written again after each part."""

    setting: Setting
    path: Path | None
    commit: str
    figures: Figures = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """The device, and the versions of what runs on it."""
        name = torch.cuda.get_device_name() if self.setting.is_cuda else "REHEARSAL with tiny shapes, no figures"
        versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
        return f"{name}; {find_processor()}; Python {platform.python_version()}, {versions}"

    @property
    def rows(self) -> list[Row]:
        """Each figure beside its target, or why there is none. In a rehearsal, nothing is met or missed."""
        rehearsal = {"met": "rehearsal"} if self.setting.is_rehearsal else {}
        return [
            {
                **build_target_row(target, self.figures.get(target.figure)),
                **rehearsal,
                "note": self.notes.get(target.report, ""),
            }
            for target in TARGETS
        ]

    def add(self, part: str, measure: Callable[[], Figures]) -> None:
        """Adds the figures of a part, or a note if it fails."""
        try:
            self.figures |= measure()
        except Exception as error:  # whatever fails, the other parts are measured
            traceback.print_exc()
            self.notes[part] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if self.path is not None:
            write_report(
                self.path.stem,
                self.rows,
                self.figures,
                device=self.device,
                folder=self.path.parent,
                commit=self.commit,
            )


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse_options(arguments)
    if not options.rehearse and not torch.cuda.is_available():
        raise SystemExit("benchmarks.engine_gpu needs a GPU, and torch finds none here; --rehearse runs without")
    has_large = not options.rehearse and (_LARGE_TOKENIZER / "tokenizer.json").exists()
    tokenizer = _LARGE_TOKENIZER if has_large else DEFAULT_MODEL
    setting = Setting("cpu" if options.rehearse else "cuda", tokenizer, is_rehearsal=options.rehearse)
    output = options.output or (None if options.rehearse else RESULTS_DIR / "engine_gpu.json")
    report = Report(setting, output, options.commit or find_commit())
    report.figures = {"is_rehearsal": setting.is_rehearsal, "large_tokenizer": has_large}
    for shape, parts in PARTS.items():
        with ExitStack() as owner:
            load = _load_once(setting, shape, owner)
            for part, measure in parts.items():
                if part in options.only or not options.only:
                    report.add(part, lambda measure=measure, load=load: measure(load()))  # type: ignore[misc]
    print_rows(report.device, report.rows)


def _parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where the report goes (default: benchmarks/results)")
    names = [name for parts in PARTS.values() for name in parts]
    parser.add_argument("--only", action="append", default=[], choices=names, metavar="PART")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with tiny shapes")
    parser.add_argument("--commit", help="for the report, where the copy of the repository has no history")
    return parser.parse_args(arguments)


def _load_once(setting: Setting, shape: str | None, owner: ExitStack) -> Callable[[], Setting | RandomEngine]:
    """Gives what parts of this shape measure. The first call loads the engine, and `owner` ends it."""
    if shape is None:
        return lambda: setting
    return cache(lambda: owner.enter_context(random_engine(setting, setting.shapes[shape])))


if __name__ == "__main__":
    main()
