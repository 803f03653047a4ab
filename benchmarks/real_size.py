"""A model of a size that people use, 494 million weights, on two cores without a GPU, beside llama.cpp.

    python -m benchmarks.real_size [--output FOLDER] [--only PART ...] [--short]

The weights are those of the bundled model, grown to the shape of Qwen2.5-Coder-0.5B with a vocabulary of 151,643 tokens
(`benchmarks/corpora/grown_model.py`). llama.cpp gets the same weights as Q8_0 and Q4_0. What is written, 2 GB, stays in
build/real-size. Every program runs in a process of its own and waits while the others run; another one begins in each
repeat. A figure is the median of five repeats.

- `read_ratio_…`: reading 1,000 tokens, our time divided by llama.cpp's, 8 bits and 4 bits. `decode_ratio_…`: a token
  after 500, with two threads and with one. `tree_ratio`: a tree of five, to five rows of llama.cpp, 8 bits.
"""

import statistics
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.baselines.contestants.line_protocol import Contestant
from benchmarks.contestants import find_python
from benchmarks.corpora.grown_model import SHAPES, write_grown_model
from benchmarks.measures.report import Figures, Part, Target, run_parts, track

_FOLDER = Path("build/real-size").absolute()
_NUM_REPEATS = 5
_MAIN_THREADS = 2
_PAIRS = {"q8": ("int8", "q8_0"), "q4": ("int4", "q4_0")}
_PAUSE_S = 0.005  # after an answer, so that threads that wait actively have gone to sleep

_TARGETS = (
    Target("read_ratio_q8", "reading 1,000 tokens, 8 bits to Q8_0", at_most=0.6),
    Target("read_ratio_q4", "reading 1,000 tokens, 4 bits to Q4_0", at_most=0.75),
    Target("decode_ratio_q8", "a token after 500, 8 bits to Q8_0", at_most=1.0),
    Target("decode_ratio_q4", "a token after 500, 4 bits to Q4_0", at_most=1.0),
    Target("decode_ratio_q8_1_thread", "the same with one thread, 8 bits", at_most=1.0),
    Target("decode_ratio_q4_1_thread", "the same with one thread, 4 bits", at_most=1.0),
    Target("tree_ratio", "a tree of five, to five rows, 8 bits", at_most=0.88),
)


def main() -> None:
    parts: dict[str, Part] = {
        "passes": partial(_measure_passes, _MAIN_THREADS, 1000),
        "one_thread": partial(_measure_passes, 1, 500),
    }
    run_parts("real_size", parts, _TARGETS)


class Subject:
    """The model that is measured, with llama.cpp's files of it."""

    def __init__(self, is_short: bool) -> None:
        """`is_short`: a small one, and few repeats."""
        from benchmarks.baselines.gguf_file import Precision, write_gguf  # here, because only benchmarks have gguf

        shape = "short" if is_short else "0_5b"
        self.model, self.num_repeats = _FOLDER / shape, 1 if is_short else _NUM_REPEATS
        if not self.model.exists():
            print("building the model", flush=True)
            write_grown_model(self.model, SHAPES[shape])
        for _, precision in _PAIRS.values():
            if not self._find_gguf(precision).exists():
                write_gguf(self.model, self._find_gguf(precision), Precision(precision))

    def _find_gguf(self, precision: str) -> Path:
        return _FOLDER / f"{self.model.name}-{precision}.gguf"

    def start(self, name: str, num_threads: int, *options: str) -> Contestant:
        """Starts the contestant for `name`, a type of our numbers or one of llama.cpp's."""
        if self._find_gguf(name).exists():
            python, module, model = find_python("llama_cpp"), "llama_cpp_python", self._find_gguf(name)
        else:
            python, module, model = Path(sys.executable), "midtoken", self.model
            options = (*options, f"--dtype={name}", f"--graph-dir={_FOLDER / 'graphs'}")
        module = f"benchmarks.baselines.contestants.{module}"
        command = [str(python), "-m", module, str(model), f"--threads={num_threads}", *options]
        return Contestant(name, command, {}, _FOLDER / "logs" / f"{name}.log")


def _measure_passes(num_threads: int, num_tokens: int, is_short: bool) -> Figures:
    subject = Subject(is_short)
    names = [name for pair in _PAIRS.values() for name in pair]
    times: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        contestants = [stack.enter_context(subject.start(name, num_threads, "--passes")) for name in names]
        for repeat in track(range(subject.num_repeats), "repeat"):
            for message in ({"read": num_tokens, "keep": 500}, {"rows": 1}, {"rows": 5}):
                for each in contestants[repeat % 4 :] + contestants[: repeat % 4]:
                    work = "read" if "read" in message else f"rows {message['rows']}"
                    times.setdefault((each.name, work), []).append(each.ask(message))
                    time.sleep(_PAUSE_S)
    end = "" if num_threads == _MAIN_THREADS else f"_{num_threads}_thread"
    figures: dict[str, float] = {}
    for bits, (ours, theirs) in _PAIRS.items():
        for figure, work in (("read", "read"), ("decode", "rows 1"), ("tree", "rows 5")):
            own, other = (statistics.median(times[name, work]) for name in (ours, theirs))
            name = "tree_ratio" if (figure, bits) == ("tree", "q8") else f"{figure}_ratio_{bits}"
            figures |= {
                f"{name}{end}": own / other,
                f"{figure}_ms_{ours}{end}": own,
                f"{figure}_ms_{theirs}{end}": other,
            }
    return figures


if __name__ == "__main__":
    main()
