"""GGUF files in the engine, beside llama.cpp's plain loop with the same file, and beside onnxruntime.

    python -m benchmarks.gguf [--output PATH] [--only PART ...] [--short]

- right: the bundled model in float32 completes at 540 cuts as on onnxruntime, in every strategy, with and without the
  text after the cursor, one completion or three; what is closer than a gap is a tie.
- default, large: what a key costs, with the bundled model (float32, Q8_0), and with one of 494 million weights that are
  those of the bundled model, grown (Q8_0, Q4_K_M). At each visit a person types four keys of a word. Both programs have
  read the text before the first one, and generate one token after each key, and the line after the last.

`first_text_ratio`: from a key to the first text after the cursor, ours to theirs; theirs continues the canonical tokens
of the text. `healing_overhead`:
the whole line, ours with healing, to llama.cpp when it decodes the same tokens one by one from the place where the
healed bytes begin. `…_alone` is the same without drafts. Medians over keys, and over the ratios of lines; two threads.
"""

import math
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copyfile

import llama_cpp

from benchmarks.baselines.contestants.line_protocol import Line
from benchmarks.baselines.contestants.midtoken import LineSink
from benchmarks.baselines.gguf_file import Precision, write_gguf
from benchmarks.baselines.plain_loop import PlainLoop
from benchmarks.corpora.cuts import Visit, draw_cuts, draw_visits
from benchmarks.corpora.grown_model import SHAPES, write_grown_model
from benchmarks.measures.report import Figures, Part, Target, Value, run_parts, track
from benchmarks.measures.right_choices import compare_engines
from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.local_executor import build_engine
from inference.model.loader import load_model
from inference.protocol.completion import CompletionRequest, Extent
from models.training.corpus import iter_held_out

_BUNDLED = Path("models/default").absolute()
_FOLDER = Path("build/gguf").absolute()
_LARGE, _SHORT_LARGE = (Path("build/real-size", shape).absolute() for shape in ("0_5b", "short"))
_NUM_THREADS = 2
_GAP = 0.02  # nats
_NUM_CUTS, _NUM_SHORT_CUTS = 540, 10
_NUM_KEYS = 4  # of a visit; the first one is not counted
_NUM_VISITS = {"default": 40, "large": 15}
_CONTEXT_CHARS = 1200
_MAX_TOKENS = 64
_PAUSE_S = 0.005  # after an answer, so that threads that wait actively have gone to sleep
_FILES = {"default": ("f32", "q8_0"), "large": ("q8_0", "q4_k_m")}


_TARGETS = (
    Target("num_cuts", "cuts that were compared with onnxruntime", at_least=500),
    Target("wrong_choices", "other choices than onnxruntime's that are no ties", at_most=0),
    *(
        Target(f"{figure}_{part}_{precision}", f"{meaning}, {part} model, {precision}", at_most=limit)
        for part, precisions in _FILES.items()
        for precision in precisions
        for figure, meaning, limit in (
            ("first_text_ratio", "first text after a key, to llama.cpp", 1.0),
            ("healing_overhead", "a healed line, to the same tokens in llama.cpp", 1.05),
        )
    ),
)


def main() -> None:
    parts: dict[str, Part] = {"right": _measure_right, **{part: partial(_measure_part, part) for part in _FILES}}
    run_parts("gguf", parts, _TARGETS)


def _measure_right(is_short: bool) -> Figures:
    ours, theirs = EngineConfig(_build_folder("default", "f32", is_short)), EngineConfig(_BUNDLED, dtype="float32")
    num_cuts = _NUM_SHORT_CUTS if is_short else _NUM_CUTS
    cuts = draw_cuts(iter_held_out(), num_cuts // 2, num_cuts // 2, seed=5)
    found = compare_engines(ours, theirs, cuts, _GAP)
    return {
        "num_cuts": len(cuts),
        "equal_choices": len(cuts) - found.num_tied - len(found.wrong),
        "tied_choices": found.num_tied,
        "wrong_choices": len(found.wrong),
    }


def _build_folder(part: str, precision: str, is_short: bool) -> Path:
    """A folder that is served, with a GGUF file of the bundled model or of a larger one."""
    source = _BUNDLED if part == "default" else _SHORT_LARGE if is_short else _LARGE
    folder = _FOLDER / (f"short-{part}-{precision}" if is_short and part != "default" else f"{part}-{precision}")
    if not source.exists():
        print("building the model", flush=True)
        write_grown_model(source, SHAPES[source.name])
    if not (folder / "model.gguf").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for path in source.glob("*.json"):
            copyfile(path, folder / path.name)
        _write_file(source, folder / "model.gguf", precision, is_short)
    return folder


def _write_file(source: Path, path: Path, precision: str, is_short: bool) -> None:
    if precision != "q4_k_m":
        write_gguf(source, path, Precision(precision))
        return
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.allow_requantize = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M, True
    before = _build_folder("large", "q8_0", is_short) / "model.gguf"
    if llama_cpp.llama_model_quantize(str(before).encode(), str(path).encode(), options):
        raise RuntimeError("llama.cpp cannot write Q4_K_M")


def _measure_part(part: str, is_short: bool) -> Figures:
    figures: dict[str, Value] = {}
    visits = draw_visits(iter_held_out(), 1 if is_short else _NUM_VISITS[part], seed=2)
    for precision in _FILES[part]:
        folder = _build_folder(part, precision, is_short)
        keys: list[_Key] = []
        lines: dict[bool, list[_Key]] = {True: [], False: []}
        for drafts, kept in lines.items():
            config = EngineConfig(folder, num_threads=_NUM_THREADS, graph_dir=_FOLDER)
            loaded = load_model(config)
            loaded.model.token_cost = loaded.model.token_cost if drafts else math.inf
            with closing(build_engine(config, loaded)) as engine, closing(PlainLoop(folder, _NUM_THREADS)) as loop:
                for visit in track(visits, f"{part}, {precision}, {'with' if drafts else 'without'} drafts"):
                    found = list(_visit(engine, loop, visit))
                    keys += found
                    kept.append(found[-1])
        ends = f"_{part}_{precision}"
        figures |= {
            f"first_text_ratio{ends}": statistics.median(key.first_ms for key in keys)
            / statistics.median(key.their_first_ms for key in keys),
            f"healing_overhead{ends}": statistics.median(key.line_ms / key.their_line_ms for key in lines[True]),
            f"healing_overhead_alone{ends}": statistics.median(key.line_ms / key.their_line_ms for key in lines[False]),
        }
    return figures


@dataclass(frozen=True, slots=True)
class _Key:
    """What a key cost."""

    first_ms: float
    line_ms: float
    their_first_ms: float
    their_line_ms: float


def _visit(engine: Engine, loop: PlainLoop, visit: Visit) -> Iterator[_Key]:
    """The keys of a word but the first, before which all is read."""
    text = visit.text[-_CONTEXT_CHARS:].partition("\n")[2]
    for num_left in range(_NUM_KEYS, -1, -1):
        prefix = text[: len(text) - num_left]
        max_tokens, sink = 1 if num_left else _MAX_TOKENS, LineSink(Line())
        engine.submit(CompletionRequest(prefix, max_tokens=max_tokens, extent=Extent.SINGLE_LINE), sink)
        line_text, _ = sink.wait()
        line = sink.line.finish()
        time.sleep(_PAUSE_S)
        their_first_ms = loop.measure_first_ms(prefix)
        their_line_ms = loop.measure_line_ms(prefix, line_text)
        time.sleep(_PAUSE_S)
        if num_left < _NUM_KEYS:
            yield _Key(line.first_text_ms, line.line_ms, their_first_ms, their_line_ms)


if __name__ == "__main__":
    main()
