"""Which layout of a fill-in prompt completes best, and whether completions repeat the text after the cursor.

Gaps are made in held-out files: the rest of an identifier, the rest of a line, and one to three whole lines. Every gap
is filled with each layout, and without its suffix. Decoding is greedy.

- right: the rest of the identifier, as in `benchmarks.accuracy`; the rest of the line.
- cut: completions that the engine ended where they reached the suffix.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from benchmarks.corpora.cuts import Gap, GapKind, draw_gaps
from benchmarks.measures.report import Figures, Value, find_percent, run_parts, track
from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.fill_in import Layout, choose_fill_in
from inference.engine.local_executor import start_engine
from inference.engine.prompt import PromptBuilder
from inference.model.loader import load_model
from inference.protocol.completion import CompletionRequest, Extent, FinishReason
from midtoken.installed import find_bundled_model
from models.training.corpus import iter_held_out
from tests.support.sinks import submit

_COUNTS = {GapKind.IDENTIFIER: 1000, GapKind.LINE: 300, GapKind.BLOCK: 150}
_SHORT_COUNTS = {GapKind.IDENTIFIER: 24, GapKind.LINE: 8, GapKind.BLOCK: 4}
_PREFIX_CHARS, _SUFFIX_CHARS = 1500, 700
_MAX_TOKENS = {GapKind.IDENTIFIER: 16, GapKind.LINE: 32, GapKind.BLOCK: 48}
_BATCH_SIZE = 24


@dataclass(frozen=True, slots=True)
class Filled:
    """A gap, and what one layout wrote into it."""

    gap: Gap
    text: str
    finish_reason: FinishReason | None


def main() -> None:
    run_parts("fill_in", {"layouts": _measure})


def _measure(is_short: bool) -> Figures:
    gaps = [_cut_context(gap) for gap in draw_gaps(iter_held_out(), _SHORT_COUNTS if is_short else _COUNTS, seed=1)]
    filled: dict[Layout, list[Filled]] = {layout: [] for layout in Layout}
    with _load_engines() as (default, engines):
        for start in track(range(0, len(gaps), _BATCH_SIZE), "completing"):
            for layout, engine in engines.items():
                filled[layout] += _fill(engine, gaps[start : start + _BATCH_SIZE])
    num_cut = sum(each.finish_reason is FinishReason.SUFFIX for each in filled[default])
    figures: dict[str, Value] = {"num_gaps": len(gaps), "num_cut": num_cut}
    without = _list_marks(filled[Layout.NONE], GapKind.IDENTIFIER)
    for layout, some in filled.items():
        marks = _list_marks(some, GapKind.IDENTIFIER)
        differences = [ours - other for ours, other in zip(marks, without, strict=True)]
        figures |= {
            f"right_{layout}": find_percent(marks),
            f"difference_{layout}": 100 * statistics.mean(differences),
            f"spread_{layout}": 196 * statistics.pstdev(differences) / math.sqrt(len(differences)),  # half of 95 %
            f"line_{layout}": find_percent(_list_marks(some, GapKind.LINE)),
        }
    return {**figures, "right_default": figures[f"right_{default}"]}


def _list_marks(filled: list[Filled], kind: GapKind) -> list[bool]:
    return [each.gap.is_filled_by(each.text) for each in filled if each.gap.kind is kind]


@contextmanager
def _load_engines() -> Iterator[tuple[Layout, dict[Layout, Engine]]]:
    """The default layout of the model, and an engine for each layout. They share the model, and run in turn."""
    config = EngineConfig(find_bundled_model(), num_threads=1, max_sequences=_BATCH_SIZE)
    loaded = load_model(config)
    default = choose_fill_in(config, loaded)
    with ExitStack() as stack:
        engines = {}
        for layout in Layout:
            setting = dataclasses.replace(config, fill_in_layout=str(layout))
            prompts = PromptBuilder(loaded.tokenizer, choose_fill_in(setting, loaded))
            engines[layout] = stack.enter_context(closing(start_engine(setting, loaded.model, prompts)))
        yield Layout.NONE if default is None else default.layout, engines


def _cut_context(gap: Gap) -> Gap:
    """The gap with less text around it, from a line's start on."""
    start = gap.prefix.find("\n", max(len(gap.prefix) - _PREFIX_CHARS, 0)) + 1
    return dataclasses.replace(gap, prefix=gap.prefix[start:], suffix=gap.suffix[:_SUFFIX_CHARS])


def _fill(engine: Engine, gaps: list[Gap]) -> list[Filled]:
    requests = [
        CompletionRequest(
            gap.prefix,
            gap.suffix,
            max_tokens=_MAX_TOKENS[gap.kind],
            extent=Extent.BLOCK if gap.kind is GapKind.BLOCK else Extent.SINGLE_LINE,
        )
        for gap in gaps
    ]
    sinks = [submit(engine, request) for request in requests]
    return [Filled(gap, sink.wait().text, sink.finish_reason) for gap, sink in zip(gaps, sinks, strict=True)]


if __name__ == "__main__":
    main()
