"""How fast and right the engine is on one GPU: real shapes with random weights, bfloat16, no server.

    python -m benchmarks.engine_gpu [--output FOLDER] [--only PART ...]

It needs a GPU, torch and transformers, and no network. It is not part of `make bench`, which measures what everybody
has: two cores and the default model.

- `right_…`: the default model chooses the tokens that it chooses on the CPU in float32.
- `warm20_…`: a key in a document that the engine remembers, until its completion of 20 tokens is there. `bound_ratio_…`
  is that time, relative to reading the weights, keys and values of its passes at the speed of a copy.
- `tree_…`: a step with a healing tree beside one without. `choice_…`: mask and choice alone.
- `scale_64_…`: 64 sequences beside one. `prefill_…`: reading a text.

A test runs the parts on the CPU with tiny shapes.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import transformers

from benchmarks.corpora.cuts import draw_cuts
from benchmarks.measures.gpu_engine import DEFAULT_MODEL, Setting, random_engine
from benchmarks.measures.gpu_speed import measure_choice, measure_prefill, measure_scale, measure_tree, measure_warm
from benchmarks.measures.report import Figures, Target, Value, run_parts
from benchmarks.measures.right_choices import compare_engines
from inference.config import EngineConfig
from models.training.corpus import iter_held_out

_LARGE_TOKENIZER = Path("build/large-tokenizer")
_TOLERANCES = {"float32": 0.01, "bfloat16": 0.15}  # nats between the two best

TARGETS = (
    Target("right_wrong_float32", "other choices than on the CPU in float32, float32", at_most=0),
    Target("right_wrong_bfloat16", "other choices than on the CPU in float32, bfloat16", at_most=0),
    Target("warm20_ms_1_5b", "warm completion of 20 tokens, 1.5B, median, ms", at_most=30),
    Target("warm20_ms_7b", "warm completion of 20 tokens, 7B, median, ms", at_most=100),
    Target("bound_ratio_1_5b", "that time, relative to reading its bytes, 1.5B", at_most=1.3),
    Target("bound_ratio_7b", "that time, relative to reading its bytes, 7B", at_most=1.3),
    Target("tree_overhead_1_5b", "what the healing tree adds to a step, 1.5B", at_most=0.05),
    Target("tree_overhead_7b", "what the healing tree adds to a step, 7B", at_most=0.05),
    Target("choice_us_64", "mask and choice for 64 rows, us", at_most=20),
    Target("scale_64_1_5b", "tokens a second of 64 sequences, relative to one, 1.5B", at_least=10),
    Target("scale_64_7b", "tokens a second of 64 sequences, relative to one, 7B", at_least=10),
    Target("prefill_peak_share_7b", "reading 2,000 tokens, share of 989 TFLOP/s, 7B", at_least=0.5),
)


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.engine_gpu needs a GPU, and torch finds none here")
    has_large = (_LARGE_TOKENIZER / "tokenizer.json").exists()
    setting = Setting("cuda", _LARGE_TOKENIZER if has_large else DEFAULT_MODEL)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    run_parts("engine_gpu", build_parts(setting), TARGETS, f"{torch.cuda.get_device_name()}; {versions}")


def build_parts(setting: Setting) -> dict[str, Callable[[], Figures]]:
    """The parts by name. What is right is measured first."""
    by_shape = {shape: partial(_measure_shape, setting, shape) for shape in setting.shapes}
    return {"right": partial(_measure_right, setting), "choice": partial(measure_choice, setting), **by_shape}


def _measure_right(setting: Setting) -> Figures:
    """`right_…` for each type of numbers."""
    reference = EngineConfig(DEFAULT_MODEL, dtype="float32")
    num_each = setting.sizes.num_right_cuts // 2
    cuts = draw_cuts(iter_held_out(), num_each, num_each, seed=5)
    figures: dict[str, Value] = {"right_cuts": len(cuts)}
    for dtype, gap in _TOLERANCES.items():
        counts = compare_engines(EngineConfig(DEFAULT_MODEL, setting.device, dtype), reference, cuts, gap)
        figures |= {f"right_wrong_{dtype}": len(counts.wrong), f"right_close_{dtype}": counts.num_tied}
        figures[f"right_largest_gap_{dtype}"] = counts.greatest_gap
    return figures


def _measure_shape(setting: Setting, shape: str) -> Figures:
    figures: dict[str, Value] = {"has_large_tokenizer": setting.tokenizer == _LARGE_TOKENIZER}
    with random_engine(setting, shape) as engine:
        for measure in (measure_warm, measure_tree, measure_prefill, measure_scale):
            figures |= measure(engine)
    return figures


if __name__ == "__main__":
    main()
