"""Which layout of a fill-in prompt completes best, and whether completions repeat the text after the cursor.

Gaps are made in held-out files: the rest of an identifier, the rest of a line, and one to three whole lines. Every gap
is filled with each layout, and without its suffix. Decoding is greedy.

- right: the rest of the identifier, as in `benchmarks.accuracy`; the rest of the line; all missing lines.
- cut: completions that the engine ended where they reached the suffix.
- repeats: completions that still end with the beginning of the suffix (`benchmarks.corpora.cuts.Gap.is_repeated_by`).
"""

import dataclasses
import math
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from benchmarks.corpora.cuts import Gap, GapKind, draw_gaps
from benchmarks.measures.report import Measured, Row, Value, find_percent, run_parts, track
from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.fill_in import Layout, choose_fill_in
from inference.engine.local_engine import start_engine
from inference.engine.prompt import PromptBuilder
from inference.model.loader import load_model
from inference.protocol.completion import CompletionRequest, Extent, FinishReason
from midtoken.installed import find_default_model
from models.training.corpus import iter_held_out
from tests.support.sinks import submit

_COUNTS = {GapKind.IDENTIFIER: 1000, GapKind.LINE: 300, GapKind.BLOCK: 150}
_SHORT_COUNTS = {GapKind.IDENTIFIER: 24, GapKind.LINE: 8, GapKind.BLOCK: 4}
_PREFIX_CHARS, _SUFFIX_CHARS = 1500, 700
_MAX_TOKENS = {GapKind.IDENTIFIER: 16, GapKind.LINE: 32, GapKind.BLOCK: 48}
_BATCH_SIZE = 24
_FIGURES = {
    "right": "identifier",
    "difference": "to no suffix",
    "spread": "± (95 %)",
    "line": "line",
}  # columns of rows


@dataclass(frozen=True, slots=True)
class Filled:
    """A gap, and what one layout wrote into it."""

    gap: Gap
    text: str
    finish_reason: FinishReason | None


def main() -> None:
    run_parts("fill_in", {"layouts": _measure})


def _measure(is_short: bool) -> Measured:
    counts = _SHORT_COUNTS if is_short else _COUNTS
    gaps = [_cut_context(gap) for gap in draw_gaps(iter_held_out(), counts, seed=1)]
    filled: dict[Layout, list[Filled]] = {layout: [] for layout in Layout}
    with _load_engines() as (default, engines):
        for start in track(range(0, len(gaps), _BATCH_SIZE), "completing"):
            batch = gaps[start : start + _BATCH_SIZE]
            for layout, engine in engines.items():
                filled[layout] += _fill(engine, batch)
    rows = [_build_row(layout, filled[layout], filled[Layout.NONE], layout is default) for layout in Layout]
    figures: dict[str, Value] = {f"num_{kind}": number for kind, number in counts.items()}
    figures |= {
        "num_gaps": len(gaps),
        "num_cut": sum(each.finish_reason is FinishReason.SUFFIX for each in filled[default]),
    }
    for row, layout in zip(rows, Layout, strict=True):
        figures |= {f"{figure}_{layout}": row[name] for figure, name in _FIGURES.items()}
    figures["right_default"] = figures[f"right_{default}"]
    return Measured(figures, rows)


@contextmanager
def _load_engines() -> Iterator[tuple[Layout, dict[Layout, Engine]]]:
    """The default layout of the model, and an engine for each layout. They share the model, and run in turn."""
    config = EngineConfig(find_default_model(), num_threads=1, max_sequences=_BATCH_SIZE)
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


def _build_row(layout: Layout, filled: list[Filled], without: list[Filled], is_default: bool) -> Row:
    by_kind = {kind: [each for each in filled if each.gap.kind is kind] for kind in GapKind}
    return {
        "layout": "none (no suffix)" if layout is Layout.NONE else str(layout),
        "default": is_default,
        "identifier": _percent_right(filled),
        "to no suffix": _percent_right(filled) - _percent_right(without),
        "± (95 %)": _find_spread(filled, without),
        "line": find_percent(each.gap.is_filled_by(each.text) for each in by_kind[GapKind.LINE]),
        "lines": find_percent(each.gap.is_filled_by(each.text) for each in by_kind[GapKind.BLOCK]),
        "ended by the model, %": find_percent(each.finish_reason is FinishReason.END for each in filled),
        "cut, %": find_percent(each.finish_reason is FinishReason.SUFFIX for each in filled),
        "repeats": sum(each.gap.is_repeated_by(each.text) for each in filled),
    }


def _percent_right(filled: list[Filled]) -> float:
    """Of the identifiers."""
    return find_percent(each.gap.is_filled_by(each.text) for each in filled if each.gap.kind is GapKind.IDENTIFIER)


def _find_spread(filled: list[Filled], without: list[Filled]) -> float:
    """Half the width of the 95 % interval of the difference between paired identifiers, in percent."""
    differences = [
        each.gap.is_filled_by(each.text) - other.gap.is_filled_by(other.text)
        for each, other in zip(filled, without, strict=True)
        if each.gap.kind is GapKind.IDENTIFIER
    ]
    return 196 * statistics.pstdev(differences) / math.sqrt(len(differences))


if __name__ == "__main__":
    main()
