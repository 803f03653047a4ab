"""A model of a size that people use, 494 million weights, on two cores without a GPU, beside llama.cpp.

    python -m benchmarks.real_size [--output FOLDER] [--only PART ...] [--short]

The weights are those of the bundled model, grown to the shape of Qwen2.5-Coder-0.5B with a vocabulary of 151,643 tokens
(`benchmarks/corpora/grown_model.py`). llama.cpp gets the same weights as Q8_0 and Q4_0. What is written, 2 GB, stays in
build/real-size. Every program runs in a process of its own and waits while the others run; another one begins in each
repeat. A figure is the median of five repeats.

- `read_ratio_…`: reading 1,000 tokens, our time divided by llama.cpp's, 8 bits and 4 bits. `decode_ratio_…`: a token
  after 500, with two threads and with one. `tree_ratio`: a tree of five, to five rows of llama.cpp, 8 bits.
- `line_ratio`: a character of the rest of a line after a key, in held-out files; `line_ratio_again` where the lines
  above it stand twice. Both programs may write another line, since only one of them heals.
- `ready_s`: the second start of a server; `first_text_ms`: after a key, with 470 tokens of context, through everything;
  `memory_mb`: of the server after a hundred completions.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.baselines.contestants.line_protocol import Contestant, Request
from benchmarks.contestants import find_python
from benchmarks.corpora.cuts import Visit, draw_visits
from benchmarks.corpora.grown_model import SHAPES, write_grown_model
from benchmarks.measures.host import run_host
from benchmarks.measures.report import Figures, Part, Target, run_parts, track
from benchmarks.measures.server_memory import measure_memory
from inference.config import EngineConfig
from inference.protocol.completion import CompletionRequest, Extent
from inference.serving.client import Client
from models.training.corpus import iter_held_out

_FOLDER = Path("build/real-size").absolute()
_NUM_REPEATS = 5
_MAIN_THREADS = 2
_PAIRS = {"q8": ("int8", "q8_0"), "q4": ("int4", "q4_0")}
_PAUSE_S = 0.005  # after an answer, so that threads that wait actively have gone to sleep
_NUM_VISITS = 10  # another fifth in each repeat
_CONTEXT_CHARS = 1700  # some 470 tokens

_TARGETS = (
    Target("read_ratio_q8", "reading 1,000 tokens, 8 bits to Q8_0", at_most=0.6),
    Target("read_ratio_q4", "reading 1,000 tokens, 4 bits to Q4_0", at_most=0.75),
    Target("decode_ratio_q8", "a token after 500, 8 bits to Q8_0", at_most=1.0),
    Target("decode_ratio_q4", "a token after 500, 4 bits to Q4_0", at_most=1.0),
    Target("decode_ratio_q8_1_thread", "the same with one thread, 8 bits", at_most=1.0),
    Target("decode_ratio_q4_1_thread", "the same with one thread, 4 bits", at_most=1.0),
    Target("tree_ratio", "a tree of five, to five rows, 8 bits", at_most=0.88),
    Target("line_ratio", "the rest of a line after a key, 8 bits to Q8_0", at_most=1.0),
    Target("line_ratio_again", "the same where code is typed again", at_most=0.6),
    Target("first_text_ms", "first text after a key, 470 tokens of context, ms", at_most=30),
    Target("memory_mb", "memory after a hundred completions, MB", at_most=1000),
    Target("ready_s", "ready at the second start, s", at_most=3),
)


def main() -> None:
    parts: dict[str, Part] = {
        "passes": partial(_measure_passes, _MAIN_THREADS, 1000),
        "one_thread": partial(_measure_passes, 1, 500),
        "line": _measure_lines,
        "server": lambda is_short: asyncio.run(_measure_server(Subject(is_short))),
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


def _measure_lines(is_short: bool) -> Figures:
    subject = Subject(is_short)
    visits = draw_visits(iter_held_out(), 2 if is_short else _NUM_VISITS, seed=1)
    return {
        "line_ratio": _compare_lines(subject, visits),
        "line_ratio_again": _compare_lines(subject, [_repeat_lines(visit) for visit in visits]),
    }


def _repeat_lines(visit: Visit) -> Visit:
    """The last lines, which a person types again below themselves."""
    lines = visit.text[-_CONTEXT_CHARS // 2 :].partition("\n")[2]
    return replace(visit, text=f"{lines}{visit.cut.run_end}{visit.suffix.partition(chr(10))[0]}\n\n\n{lines}")


def _compare_lines(subject: Subject, visits: Sequence[Visit]) -> float:
    ratios = []
    with ExitStack() as stack:
        pair = [stack.enter_context(subject.start(name, _MAIN_THREADS)) for name in _PAIRS["q8"]]
        for repeat in track(range(subject.num_repeats), "repeat"):
            times = {each.name: 0.0 for each in pair}
            num_chars = {each.name: 0 for each in pair}
            for index, visit in enumerate(visits[repeat :: subject.num_repeats]):
                for each in pair[index % 2 :] + pair[: index % 2]:
                    each.complete(Request(visit.earlier_text, max_tokens=1))  # so that nothing is known ahead
                    time.sleep(_PAUSE_S)
                    answer = each.complete(Request(visit.text))
                    times[each.name] += answer.line_ms
                    num_chars[each.name] += len(answer.line)
                    time.sleep(_PAUSE_S)
            ours, theirs = (times[each.name] / max(1, num_chars[each.name]) for each in pair)
            ratios.append(ours / theirs)
    return statistics.median(ratios)


async def _measure_server(subject: Subject) -> Figures:
    text = next(file.text for file in iter_held_out() if len(file.text) > 2 * _CONTEXT_CHARS)
    ends = range(_CONTEXT_CHARS, _CONTEXT_CHARS + 100)  # of the text before the cursor, key after key
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        config = EngineConfig(subject.model, dtype="int8", num_threads=_MAIN_THREADS, graph_dir=Path(folder))
        async with run_host(config):
            pass  # converts the weights
        ready_s = []
        for repeat in range(subject.num_repeats):
            started_at = time.perf_counter()
            async with run_host(config) as url:
                ready_s.append(time.perf_counter() - started_at)
                if repeat == subject.num_repeats - 1:
                    async with Client(url) as client:
                        found = [await _find_first_ms(client, text[:end]) for end in ends]
                    num_bytes = measure_memory(url)
    return {
        "ready_s": statistics.median(ready_s),
        "first_text_ms": statistics.median(each for each in found[1:] if each is not None),
        "first_text_ms_cold": found[0],
        "memory_mb": None if num_bytes is None else num_bytes / 1e6,
    }


async def _find_first_ms(client: Client, text: str) -> float | None:
    """The time to the first text; None if it was known before, because the key was expected."""
    started_at, first_at = time.perf_counter(), None
    request = CompletionRequest(text, max_tokens=16, extent=Extent.SINGLE_LINE, document="keys")
    async for chunk in client.stream(request):
        if chunk.text and first_at is None:
            first_at = time.perf_counter()
    assert chunk.stats is not None, "it is the last"
    return 1e3 * ((first_at or time.perf_counter()) - started_at) if chunk.stats.num_first_rows else None


if __name__ == "__main__":
    main()
