"""How long completions take in the engine, by the length of their context, and how long healing takes.

Cursors are inside identifiers of files that the model was not trained on. The text before the cursor is cut to so many
tokens.

- cold: one token, for a text that was not read before. This reads the whole context.
- again: the same request once more.
- token: what each further token of the same completion costs, up to 32 of them.

Healing is measured by itself too, with a vocabulary of 151,643 tokens and a text of 36,000 tokens: for keys whose text
was seen one key ago, and for a text of which nothing is remembered.

`prefill_ms_…` are the cold times, and `decode_ms_…` those of further tokens.

`tokens_per_forward_…` say what guesses from earlier text bring: the tokens of each forward pass after the first, in
text that the model never saw, and where somebody types again what stands above already.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.progress import track
from tokenizers import Tokenizer

from benchmarks.corpora.cuts import Cut, draw_cuts
from benchmarks.corpora.large_tokenizer import build_large_folder, read_large_vocabulary
from benchmarks.corpora.sized_files import find_sized_files
from benchmarks.measures.report import Row, Value, find_mean, find_percentile, print_rows, write_report
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import CompletionEngine, complete
from inference.healing.covering import build_covering
from inference.healing.heal_memory import HealMemory
from inference.healing.loaded_tokenizer import build_text_encoder
from inference.healing.text_encoder import TextEncoder
from inference.healing.tokenizer_file import read_tokenizer_file
from inference.protocol.completion import Chunks, CompletionRequest, CompletionStats, Extent
from models.training.corpus import iter_held_out
from trie_cache.trie import Trie

_CONTEXTS = (16, 500, 1_000)
_MAX_CONTEXT_TOKENS = 1_100  # whatever the model's folder names, and room for what is never cut
_NUM_FURTHER = 32
_MIN_FURTHER = 8  # a completion that ends earlier does not tell what a token costs
_CUT_CHARS = 8_000  # more than the longest context

_HEALED_TOKENS = 36_000
_HEALED_KEYS = 1_000  # at each place; each inserts the next character of the text
_HEALING_REPEATS = 5  # the fastest counts, because other programs may be running
_DRAFTED_CHARS = 2500
_REPEATED_CHARS = 300
_DRAFTED_TOKENS = 32
_PLACES = {"end": 1.0, "middle": 0.5, "start": 0.0}  # where the keys insert: which part of the text is before them


@dataclass(frozen=True, slots=True)
class Cursor:
    """A text up to a cursor, and where its tokens begin."""

    text: str
    token_starts: tuple[int, ...]  # in characters

    def find_prefix(self, num_tokens: int) -> str:
        """The last tokens of the text."""
        return self.text[self.token_starts[-num_tokens] :]


def main() -> None:
    options = _parse_options()
    healing_rows, healing_figures = _measure_healing()
    cursors = _draw_cursors(options.model, options.cursors, options.seed)
    config = EngineConfig(
        options.model.resolve(),
        num_threads=options.threads,
        dtype=options.dtype,
        max_context_tokens=_MAX_CONTEXT_TOKENS,
    )
    with closing(load_engine(config)) as engine:
        _ask(engine, "a = b", 2)  # the first pass is slow
        rows = [_measure(engine, num_context, cursors) for num_context in _CONTEXTS]
    print_rows(f"Medians over {options.cursors} cursors", rows)
    figures = _build_figures(rows) | healing_figures | _measure_drafts(options)
    write_report("latency", [*rows, *healing_rows], figures)


def _build_figures(rows: Sequence[Row]) -> dict[str, Value]:
    """The times by context."""
    names = {"decode": "token ms", "prefill": "cold ms"}
    return {f"{figure}_ms_{row['context']}": row[name] for row in rows for figure, name in names.items()}


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/default"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--cursors", type=int, default=12)
    parser.add_argument("--drafted", type=int, default=80, help="cursors for the gain by guesses")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _draw_cursors(model: Path, num_cursors: int, seed: int) -> list[Cursor]:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    cursors = []
    for cut in draw_cuts(iter_held_out(), 20 * num_cursors, 0, seed):
        text = cut.find_context(_CUT_CHARS)
        starts = tuple(start for start, _ in tokenizer.encode(text, add_special_tokens=False).offsets)
        if text.isascii() and len(starts) > max(_CONTEXTS) + 2:
            cursors.append(Cursor(text, starts))
    if len(cursors) < num_cursors:
        raise SystemExit(f"only {len(cursors)} cursors have {max(_CONTEXTS)} tokens before them")
    return cursors[:num_cursors]


def _measure(engine: CompletionEngine, num_context: int, cursors: Sequence[Cursor]) -> Row:
    """The medians at contexts of one length."""
    cold, again, further = [], [], []
    for cursor in track(cursors, f"{num_context} tokens"):
        prefix = cursor.find_prefix(num_context)
        cold.append(_ask(engine, prefix, 1))
        again.append(_ask(engine, prefix, 1))
        further.append(_ask(engine, prefix, 1 + _NUM_FURTHER))
    return {
        "way": "engine",
        "context": num_context,
        "cold ms": find_percentile((each.total_ms for each in cold), 50),
        "again ms": find_percentile((each.total_ms for each in again), 50),
        "token ms": find_percentile(_find_ms_per_token(again, further), 50),
        "tokens/pass": find_mean(each.num_tokens / each.num_forwards for each in further),
        "tokens read": find_mean(each.num_context_tokens for each in cold),
    }


def _find_ms_per_token(again: Sequence[CompletionStats], further: Sequence[CompletionStats]) -> list[float]:
    """What a further token costs, at each cursor where the completion goes on for long enough."""
    return [
        (more.total_ms - one.total_ms) / (more.num_tokens - one.num_tokens)
        for one, more in zip(again, further, strict=True)
        if more.num_tokens - one.num_tokens >= _MIN_FURTHER
    ]


def _ask(engine: CompletionEngine, prefix: str, max_tokens: int) -> CompletionStats:
    """The statistics of a completion that is sent as it is generated."""
    request = CompletionRequest(prefix, max_tokens=max_tokens, extent=Extent.BLOCK, chunks=Chunks.TOKENS)
    return complete(engine, request)[1]


def _measure_healing() -> tuple[list[Row], dict[str, Value]]:
    """Types into a text of about 36,000 tokens, at its end, in its middle and at its start."""
    folder = build_large_folder()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    [file] = find_sized_files(
        iter_held_out(), (_HEALED_TOKENS,), 1, lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
    )
    encoder, trie = build_text_encoder(read_tokenizer_file(folder)), Trie.build(read_large_vocabulary())
    rows: list[Row] = []
    keys_ms, cold_ms = list[float](), list[float]()
    for place, share in _PLACES.items():
        start = int(share * (len(file.text) - _HEALED_KEYS))
        prefixes = [file.text[:end] for end in range(start, start + _HEALED_KEYS + 1)]
        repeats = [_time_each(encoder, trie, prefixes) for _ in range(_HEALING_REPEATS)]
        cold_ms.append(statistics.median(times[0] for times in repeats))
        fastest = [min(times) for times in zip(*(times[1:] for times in repeats), strict=True)]
        p50, p99 = find_percentile(fastest, 50), find_percentile(fastest, 99)
        row: Row = {"keys at the": place, "cold ms": cold_ms[-1], "key ms": p50, "99 of 100 ms": p99}
        rows.append({**row, "slowest ms": max(fastest)})
        keys_ms += fastest
    print_rows("Healing, 151,643 tokens in the vocabulary, 36,000 in the text", rows)
    return rows, {"healing_ms_p99_152k": find_percentile(keys_ms, 99), "healing_cold_ms_p50_152k": max(cold_ms)}


def _time_each(encoder: TextEncoder, trie: Trie, prefixes: Sequence[str]) -> list[float]:
    """Milliseconds for each text, for a client of whom nothing is remembered at first."""
    memory = HealMemory(encoder)
    times = []
    for prefix in prefixes:
        started_at = time.perf_counter()
        build_covering(encoder, trie, memory.heal(prefix))
        times.append(1e3 * (time.perf_counter() - started_at))
    return times


def _measure_drafts(options: argparse.Namespace) -> dict[str, Value]:
    """What guesses bring in text that the model never saw, and where earlier text is typed again."""
    config = EngineConfig(options.model.resolve(), num_threads=options.threads, dtype=options.dtype)
    plain = dataclasses.replace(config, drafts=False)
    cuts = draw_cuts(iter_held_out(), options.drafted, 0, options.seed)
    figures: dict[str, Value] = {}
    with closing(load_engine(config)) as drafting, closing(load_engine(plain)) as other:
        for name, find_prefix in (("held_out", _find_held_out_prefix), ("repeated", _find_repeated_prefix)):
            pairs = [(_draft(drafting, find_prefix(cut)), _draft(other, find_prefix(cut))) for cut in cuts]
            pairs = [(ours, theirs) for ours, theirs in pairs if theirs.num_forwards]
            ratios = [ours.model_ms / theirs.model_ms for ours, theirs in pairs]
            figures |= {
                f"tokens_per_forward_{name}": _find_tokens_per_forward(ours for ours, _ in pairs),
                f"tokens_per_forward_without_drafts_{name}": _find_tokens_per_forward(theirs for _, theirs in pairs),
                f"draft_time_ratio_{name}": find_percentile(ratios, 50),
                f"draft_differences_{name}": sum(ours.text != theirs.text for ours, theirs in pairs),
            }
    return figures


def _find_held_out_prefix(cut: Cut) -> str:
    return cut.find_context(_DRAFTED_CHARS)


def _find_repeated_prefix(cut: Cut) -> str:
    """Text in which somebody types again what stands in it already."""
    text = cut.find_context(_DRAFTED_CHARS)
    return f"{text}{cut.run_end}{cut.suffix[:_REPEATED_CHARS]}\n\n{text[-_REPEATED_CHARS:]}"


@dataclass(frozen=True, slots=True)
class Drafted:
    """A completion, and its cost after its first token."""

    text: str
    num_tokens: int
    num_forwards: int
    model_ms: float


def _draft(engine: CompletionEngine, prefix: str) -> Drafted:
    for _ in range(2):  # the second reads nothing, so that the third costs what follows its first token
        _, first = complete(engine, CompletionRequest(prefix, max_tokens=1, extent=Extent.SINGLE_LINE))
    request = CompletionRequest(prefix, max_tokens=_DRAFTED_TOKENS, extent=Extent.SINGLE_LINE)
    text, stats = complete(engine, request)
    return Drafted(text, stats.num_tokens - first.num_tokens, stats.num_forwards, stats.model_ms)


def _find_tokens_per_forward(completions: Iterable[Drafted]) -> float:
    listed = list(completions)
    return sum(each.num_tokens for each in listed) / sum(each.num_forwards for each in listed)


if __name__ == "__main__":
    main()
