"""What guesses from earlier text bring: tokens for each forward pass, and the time of the passes."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from benchmarks.corpora.cuts import Cut
from benchmarks.measures.report import find_percentile
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.engine import Engine
from inference.engine.sink import WaitingSink
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, Extent

_CONTEXT_CHARS = 2500
_REPEATED_CHARS = 300
_MAX_TOKENS = 32


@dataclass(frozen=True, slots=True)
class DraftGain:
    """The sums over all completions."""

    tokens_per_forward: float  # after the first token
    tokens_per_forward_without: float
    time_ratio: float  # median over the completions: time of the passes with guesses, relative to that without
    num_different: int  # completions that are not the same with and without


class _StatsSink(WaitingSink):
    """Also keeps the statistics."""

    stats: CompletionStats | None = None

    def send(self, chunk: CompletionChunk) -> None:
        self.stats = chunk.stats or self.stats
        super().send(chunk)


def find_held_out_prefixes(cuts: Sequence[Cut]) -> list[str]:
    """The text before each cursor."""
    return [cut.find_context(_CONTEXT_CHARS) for cut in cuts]


def find_repeated_prefixes(cuts: Sequence[Cut]) -> list[str]:
    """Text in which somebody types again what stands in it already."""
    prefixes = []
    for cut in cuts:
        text = cut.find_context(_CONTEXT_CHARS)
        whole = text + cut.run_end + cut.suffix[:_REPEATED_CHARS]
        prefixes.append(f"{whole}\n\n{text[-_REPEATED_CHARS:]}")
    return prefixes


def measure_draft_gain(config: EngineConfig, prefixes: Sequence[str]) -> DraftGain:
    """Completes each text to the end of its line, with guesses and without."""
    plain = replace(config, drafts=False)
    with closing(load_engine(config)) as drafting, closing(load_engine(plain)) as other:
        pairs = [(_complete(drafting, prefix), _complete(other, prefix)) for prefix in prefixes]
    pairs = [(ours, theirs) for ours, theirs in pairs if theirs.num_forwards]
    ratios = [ours.model_ms / theirs.model_ms for ours, theirs in pairs]
    return DraftGain(
        sum(ours.num_tokens for ours, _ in pairs) / sum(ours.num_forwards for ours, _ in pairs),
        sum(theirs.num_tokens for _, theirs in pairs) / sum(theirs.num_forwards for _, theirs in pairs),
        find_percentile(ratios, 50) or 1.0,
        sum(ours.text != theirs.text for ours, theirs in pairs),
    )


@dataclass(frozen=True, slots=True)
class _Completion:
    text: str
    num_tokens: int
    num_forwards: int
    model_ms: float


def _complete(engine: Engine, prefix: str) -> _Completion:
    """The completion's cost after its first token."""
    _ask(engine, prefix, 1)
    text, first = _ask(engine, prefix, 1)
    text, stats = _ask(engine, prefix, _MAX_TOKENS)
    return _Completion(text, stats.num_tokens - first.num_tokens, stats.num_forwards, stats.model_ms)


def _ask(engine: Engine, prefix: str, max_tokens: int) -> tuple[str, CompletionStats]:
    sink = _StatsSink()
    engine.submit(CompletionRequest(prefix, max_tokens=max_tokens, extent=Extent.SINGLE_LINE), sink)
    texts = sink.wait()
    assert sink.stats is not None, "the last chunk has them"
    return texts[0], sink.stats
