"""A model of a size that people use, 494 million weights, on two cores without a GPU, beside llama.cpp.

    python -m benchmarks.real_size [--output FOLDER] [--only PART ...] [--short]

The weights are those of the bundled model, grown to the shape of Qwen2.5-Coder-0.5B with a vocabulary of 151,643 tokens
(`benchmarks/corpora/grown_model.py`). llama.cpp gets the same weights as Q8_0 and Q4_0. What is written, 2 GB, stays in
build/real-size. Every program runs in a process of its own and waits while the others run; another one begins in each
repeat. A figure is the median of five repeats.

- `read_ratio_…`: reading 1,000 tokens, our time divided by llama.cpp's, 8 bits and 4 bits. `decode_ratio_…`: a token
  after 500. `tree_ratio`: a tree of five, to five rows of llama.cpp, 8 bits.
"""

import statistics
import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from benchmarks.baselines.gguf_file import Precision, write_gguf
from benchmarks.contestants import PAUSE_S, Entry, find_llama_cpp_python
from benchmarks.corpora.grown_model import SHAPES, write_grown_model
from benchmarks.measures.report import Figures, Target, run_parts, track

_FOLDER = Path("build/real-size").absolute()
_NUM_REPEATS = 5
_NUM_THREADS = 2
_PAIRS = {"q8": ("int8", "q8_0"), "q4": ("int4", "q4_0")}
_PASSES = {"read": {"read": 1000, "keep": 500}, "decode": {"rows": 1}, "tree": {"rows": 5}}

_TARGETS = (
    Target("read_ratio_q8", "reading 1,000 tokens, 8 bits to Q8_0", at_most=0.6),
    Target("read_ratio_q4", "reading 1,000 tokens, 4 bits to Q4_0", at_most=0.75),
    Target("decode_ratio_q8", "a token after 500, 8 bits to Q8_0", at_most=1.0),
    Target("decode_ratio_q4", "a token after 500, 4 bits to Q4_0", at_most=1.0),
    Target("tree_ratio", "a tree of five, to five rows, 8 bits", at_most=0.88),
)


def main() -> None:
    run_parts("real_size", {"passes": _measure}, _TARGETS)


def _measure(is_short: bool) -> Figures:
    entries = _build_entries("short" if is_short else "0_5b")
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        contestants = [stack.enter_context(entry.start()) for entry in entries]
        for repeat in track(range(1 if is_short else _NUM_REPEATS), "repeat"):
            for work, message in _PASSES.items():
                for each in contestants[repeat % 4 :] + contestants[: repeat % 4]:
                    times[each.name, work].append(each.ask(message))
                    time.sleep(PAUSE_S)
    ratios = {
        f"{work}_ratio_{bits}": statistics.median(times[ours, work]) / statistics.median(times[theirs, work])
        for bits, (ours, theirs) in _PAIRS.items()
        for work in _PASSES
    }
    return {"tree_ratio": ratios.pop("tree_ratio_q8"), **ratios}


def _build_entries(shape: str) -> list[Entry]:
    """Writes what is missing of the model, and of llama.cpp's files of it."""
    model, entries = _FOLDER / shape, []
    if not model.exists():
        print("building the model", flush=True)
        write_grown_model(model, SHAPES[shape])
    for ours, theirs in _PAIRS.values():
        file = _FOLDER / f"{shape}-{theirs}.gguf"
        if not file.exists():
            write_gguf(model, file, Precision(theirs))
        arguments = (str(model), "--passes", f"--dtype={ours}", f"--graph-dir={_FOLDER / 'graphs'}")
        entries.append(Entry(ours, Path(sys.executable), "midtoken", arguments, _NUM_THREADS))
        llama_cpp = find_llama_cpp_python(), "llama_cpp_python"
        entries.append(Entry(theirs, *llama_cpp, (str(file), "--passes"), _NUM_THREADS))
    return entries


if __name__ == "__main__":
    main()
