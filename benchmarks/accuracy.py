"""How often a completion is right, by healing strategy.

Cursors are drawn inside identifiers, operators, runs of blanks and words of strings in held-out files. A completion is
right if it begins with exactly the rest of that identifier, operator, run or word. Decoding is greedy, and the model
gets the prefix only. All strategies complete at one cursor before the next cursor is used.

A second table is about cursors inside identifiers after one to eight typed characters, equally many of each, on and off
the edges of the finished text's tokens.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import torch
import transformers
from rich.progress import track
from tokenizers import Tokenizer

from benchmarks.corpora.cuts import Cut, draw_cuts, draw_cuts_by_offset
from benchmarks.measures.report import Row, Value, find_percent, write_report
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import CompletionEngine, complete
from inference.protocol.completion import CompletionRequest, CompletionStats, Extent, Healing
from midtoken.installed import find_default_model
from models.training.corpus import iter_held_out
from models.training.evaluation import measure_bits_per_byte
from tests.support.sinks import submit

_NUM_IDENTIFIERS, _NUM_OTHERS, _NUM_EACH_OFFSET = 500, 210, 150
_SEED = 1
_HEALINGS = (Healing.NONE, Healing.SINGLE, Healing.GREEDY, Healing.EXACT)
_OFFSET_HEALINGS = (Healing.NONE, Healing.GREEDY, Healing.EXACT)
_MAX_TOKENS = 12
_CONTEXT_CHARS = 2000
_SUFFIX_CHARS = 100  # enough for the tokens around the cursor


@dataclass(frozen=True, slots=True)
class Outcome:
    """The completions at one cursor."""

    is_on_edge: bool  # whether a token of the finished text ends at the cursor
    is_right: Mapping[Healing, bool]


def main() -> None:
    bits = _measure_bits()
    cuts = draw_cuts(iter_held_out(), _NUM_IDENTIFIERS, _NUM_OTHERS, _SEED)
    solved: dict[tuple[Healing, bool], list[bool]] = defaultdict(list)  # by strategy, and whether in an identifier
    costs: dict[Healing, list[CompletionStats]] = defaultdict(list)
    with closing(load_engine(EngineConfig(find_default_model(), num_threads=1))) as engine:
        for cut in track(cuts, "completing"):
            for healing in _HEALINGS:
                text, stats = complete(engine, _build_request(cut, healing))
                solved[healing, cut.kind == "identifier"].append(cut.is_solved_by(text))
                costs[healing].append(stats)
        offset_cuts = draw_cuts_by_offset(iter_held_out(), _NUM_EACH_OFFSET, _SEED)
        outcomes = list(_iter_outcomes(engine, track(offset_cuts, "completing by offset")))
    rows = [_build_row(healing, solved, costs[healing]) for healing in _HEALINGS]
    offset_rows = _build_offset_rows(outcomes)
    figures: dict[str, Value] = {"num_cuts": len(cuts), "bits_per_byte": bits}
    columns = ("identifier", "other", "forwards", "ms")
    figures |= {f"{name}_{row['healing']}": row[name] for row in rows for name in columns}
    by_name = {row["cursors"]: row for row in offset_rows}
    figures |= {f"{name}_{each}": by_name[name][each] for name in ("edge", "inside") for each in ("exact", "none")}
    figures |= {f"all_{each}": by_name["all"][each] for each in ("exact", "greedy")}
    write_report("accuracy", [*rows, *offset_rows], figures)


def _measure_bits() -> float:
    folder = find_default_model()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return measure_bits_per_byte(model.eval(), tokenizer.backend_tokenizer)


def _build_row(healing: Healing, solved: dict[tuple[Healing, bool], list[bool]], costs: list[CompletionStats]) -> Row:
    return {
        "healing": str(healing),
        "identifier": find_percent(solved[healing, True]),
        "± (95 %)": 196 * math.sqrt(0.25 / _NUM_IDENTIFIERS),
        "other": find_percent(solved[healing, False]),
        "forwards": statistics.mean(stats.num_healing_forwards or 1 for stats in costs),
        "ms": statistics.median(stats.total_ms for stats in costs),
    }


def _build_request(cut: Cut, healing: Healing) -> CompletionRequest:
    """A request for the rest of the cut's run, which does not know the text after the cursor."""
    prefix = cut.find_context(_CONTEXT_CHARS)
    return CompletionRequest(prefix, max_tokens=_MAX_TOKENS, healing=healing, extent=Extent.SINGLE_LINE)


def _iter_outcomes(engine: CompletionEngine, cuts: Iterable[Cut]) -> Iterator[Outcome]:
    """Yields the outcome at each cut. All strategies complete at once, since nothing is timed here."""
    tokenizer = Tokenizer.from_file(str(find_default_model() / "tokenizer.json"))
    for cut in cuts:
        sinks = {healing: submit(engine, _build_request(cut, healing)) for healing in _OFFSET_HEALINGS}
        is_right = {healing: cut.is_solved_by(sink.wait().text) for healing, sink in sinks.items()}
        yield Outcome(_is_on_edge(tokenizer, cut), is_right)


def _is_on_edge(tokenizer: Tokenizer, cut: Cut) -> bool:
    context = cut.find_context(_CONTEXT_CHARS)
    finished = context + cut.run_end + cut.suffix[:_SUFFIX_CHARS]
    return any(end == len(context) for _, end in tokenizer.encode(finished, add_special_tokens=False).offsets)


def _build_offset_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """The right completions of each strategy: of all cursors, on and off edges."""
    groups = {
        "all": list(outcomes),
        "edge": [each for each in outcomes if each.is_on_edge],
        "inside": [each for each in outcomes if not each.is_on_edge],
    }
    return [_build_offset_row(name, group) for name, group in groups.items()]


def _build_offset_row(name: str, outcomes: list[Outcome]) -> Row:
    rights = {str(healing): [each.is_right[healing] for each in outcomes] for healing in _OFFSET_HEALINGS}
    return {
        "cursors": name,
        "number": len(outcomes),
        "on edges": find_percent(each.is_on_edge for each in outcomes),
        **{healing: find_percent(marks) for healing, marks in rights.items()},
        "± (95 %)": 196 * math.sqrt(0.25 / len(outcomes)),
    }


if __name__ == "__main__":
    main()
