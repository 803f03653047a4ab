"""What guesses from earlier text bring: the tokens of each forward pass after the first.

Cursors are inside identifiers of files that the model was not trained on: in text that the model never saw, and where
somebody types again what stands above already. Both engines read the text before they are measured, and write the same.
"""

import statistics
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from rich.progress import track

from benchmarks.corpora.cuts import Cut, draw_cuts
from benchmarks.measures.report import print_rows, write_report
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import CompletionEngine, complete
from inference.protocol.completion import CompletionRequest, Extent
from midtoken.installed import find_default_model
from models.training.corpus import iter_held_out

_NUM_CURSORS = 80
_CONTEXT_CHARS = 2500
_REPEATED_CHARS = 300
_NUM_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Drafted:
    """A completion, and its cost after its first token."""

    text: str
    num_tokens: int
    num_forwards: int
    model_ms: float


def main() -> None:
    cuts = draw_cuts(iter_held_out(), _NUM_CURSORS, 0, seed=1)
    texts = {"held_out": [cut.find_context(_CONTEXT_CHARS) for cut in cuts], "repeated": [*map(_repeat, cuts)]}
    drafting, plain = (EngineConfig(find_default_model(), num_threads=1, drafts=drafts) for drafts in (True, False))
    with closing(load_engine(drafting)) as ours, closing(load_engine(plain)) as other:
        figures = dict(each for name, prefixes in texts.items() for each in _compare(name, prefixes, ours, other))
    print_rows("Guesses from earlier text", [figures])
    write_report("drafts", [figures], figures)


def _repeat(cut: Cut) -> str:
    """Text in which somebody types again what stands in it already."""
    text = cut.find_context(_CONTEXT_CHARS)
    return f"{text}{cut.run_end}{cut.suffix[:_REPEATED_CHARS]}\n\n{text[-_REPEATED_CHARS:]}"


def _compare(
    name: str, prefixes: list[str], ours: CompletionEngine, other: CompletionEngine
) -> Iterator[tuple[str, float | None]]:
    drafted = [(_draft(ours, prefix), _draft(other, prefix)) for prefix in track(prefixes, name)]
    pairs = [(mine, theirs) for mine, theirs in drafted if theirs.num_forwards]
    ours_alone = [mine for mine, _ in pairs]
    num_forwards = sum(each.num_forwards for each in ours_alone)
    yield f"tokens_per_forward_{name}", sum(each.num_tokens for each in ours_alone) / num_forwards
    yield f"draft_time_ratio_{name}", statistics.median(mine.model_ms / theirs.model_ms for mine, theirs in pairs)
    yield f"draft_differences_{name}", sum(mine.text != theirs.text for mine, theirs in pairs)


def _draft(engine: CompletionEngine, prefix: str) -> Drafted:
    for _ in range(2):  # the second reads nothing, so that the third costs what follows its first token
        _, first = complete(engine, CompletionRequest(prefix, max_tokens=1, extent=Extent.SINGLE_LINE))
    text, stats = complete(engine, CompletionRequest(prefix, max_tokens=_NUM_TOKENS, extent=Extent.SINGLE_LINE))
    return Drafted(text, stats.num_tokens - first.num_tokens, stats.num_forwards, stats.model_ms)


if __name__ == "__main__":
    main()
