"""How often a completion is right, by healing strategy.

Cursors are drawn inside identifiers, operators, runs of blanks and words of strings in held-out files. A completion is
right if it begins with exactly the rest of that identifier, operator, run or word. Decoding is greedy, and the model
gets the prefix only. All strategies complete at one cursor before the next cursor is used.

A second table is about cursors inside identifiers after one to eight typed characters, equally many of each, on and off
the edges of the finished text's tokens. The third says what a prior for "the text stopped here" would gain there.
Exact healing weighs every way to continue the typed bytes by the model's probability. If users stop typing at the end
of a token more often than elsewhere, the tokens that begin at the cursor should get more weight. With the log weight
`w`, the best of them is chosen if its probability times exp(w) exceeds that of every token that began before the
cursor. The completion is then that of `Healing.NONE`, else that of `Healing.EXACT`.
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

from benchmarks.corpora.cuts import MAX_OFFSET, Cut, draw_cuts, draw_cuts_by_offset
from benchmarks.measures.report import Row, Value, find_percent, print_rows, write_report
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import CompletionEngine, WaitingSink, complete
from inference.protocol.completion import CompletionRequest, CompletionStats, Explanation, Extent, Healing
from midtoken.installed import find_default_model
from models.training.corpus import iter_held_out
from models.training.evaluation import measure_bits_per_byte

_NUM_IDENTIFIERS, _NUM_OTHERS, _NUM_EACH_OFFSET = 500, 210, 150
_SEED = 1
_HEALINGS = (Healing.NONE, Healing.SINGLE, Healing.GREEDY, Healing.EXACT)
_OFFSET_HEALINGS = (Healing.NONE, Healing.GREEDY, Healing.EXACT)
_MAX_TOKENS = 12
_CONTEXT_CHARS = 2000
_SUFFIX_CHARS = 100  # enough for the tokens around the cursor
_LOG_WEIGHTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
_PAUSE_ODDS = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The completions at one cursor."""

    offset: int  # typed characters of the identifier
    is_on_edge: bool  # whether a token of the finished text ends at the cursor
    is_between_words: bool  # whether the cursor is between two words of the identifier
    is_right: Mapping[Healing, bool]
    advantage: float  # log odds of the best token that begins at the cursor to the best one that began before it

    def is_right_with(self, log_weight: float) -> bool:
        """True if the completion is right with this prior on the tokens that begin at the cursor."""
        stops = self.advantage + log_weight >= 0
        return self.is_right[Healing.NONE if stops else Healing.EXACT]


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
    offset_rows, prior_rows = _build_offset_rows(outcomes), _build_prior_rows(outcomes)
    print_rows(f"Right rest of the run, {len(cuts)} cursors, {bits:.3f} bits/byte", rows)
    print_rows(f"Right rest of the identifier, %, by typed characters, {len(outcomes)} cursors", offset_rows)
    print_rows("Right, %, by the log weight of the tokens that begin at the cursor", prior_rows)
    figures: dict[str, Value] = {"num_cuts": len(cuts), "bits_per_byte": bits}
    columns = ("identifier", "other", "forwards", "ms")
    figures |= {f"{name}_{row['healing']}": row[name] for row in rows for name in columns}
    by_name = {row["cursors"]: row for row in offset_rows}
    figures |= {f"{name}_{each}": by_name[name][each] for name in ("edge", "inside") for each in ("exact", "none")}
    figures |= {f"all_{each}": by_name["all"][each] for each in ("exact", "greedy")}
    write_report("accuracy", [*rows, *offset_rows, *prior_rows], figures)


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


def _build_request(cut: Cut, healing: Healing, explain: bool = False) -> CompletionRequest:
    """A request for the rest of the cut's run, which does not know the text after the cursor."""
    prefix = cut.find_context(_CONTEXT_CHARS)
    return CompletionRequest(
        prefix, max_tokens=_MAX_TOKENS, healing=healing, extent=Extent.SINGLE_LINE, explain=explain
    )


def _iter_outcomes(engine: CompletionEngine, cuts: Iterable[Cut]) -> Iterator[Outcome]:
    """Yields the outcome at each cut. All strategies complete at once, since nothing is timed here."""
    tokenizer = Tokenizer.from_file(str(find_default_model() / "tokenizer.json"))
    for cut in cuts:
        sinks = {healing: WaitingSink() for healing in _OFFSET_HEALINGS}
        for healing, sink in sinks.items():
            engine.submit(_build_request(cut, healing, explain=True), sink)
        is_right = {healing: cut.is_solved_by(sink.wait()[0]) for healing, sink in sinks.items()}
        explanation = sinks[Healing.EXACT].explanation
        assert explanation is not None, "it was asked for"
        yield Outcome(
            cut.num_typed, _is_on_edge(tokenizer, cut), cut.is_between_words, is_right, find_advantage(explanation)
        )


def _is_on_edge(tokenizer: Tokenizer, cut: Cut) -> bool:
    context = cut.find_context(_CONTEXT_CHARS)
    finished = context + cut.run_end + cut.suffix[:_SUFFIX_CHARS]
    return any(end == len(context) for _, end in tokenizer.encode(finished, add_special_tokens=False).offsets)


def find_advantage(explanation: Explanation) -> float:
    """The log odds of the best token that begins at the cursor to the best one that began before it.

    Returns infinity if no token that begins before the cursor continues the typed bytes.
    """
    crossings = [
        (node.num_covered_bytes, node.best_log_prob) for node in explanation.nodes if node.best_log_prob is not None
    ]
    num_typed = max(num_covered for num_covered, _ in crossings)
    at_cursor = max(log_prob for num_covered, log_prob in crossings if num_covered == num_typed)
    before = [log_prob for num_covered, log_prob in crossings if num_covered < num_typed]
    return at_cursor - max(before) if before else math.inf


def find_right_percent(outcomes: Sequence[Outcome], log_weight: float, pause_odds: float = 1.0) -> float:
    """The percentage of right completions with the prior, in which cursors between words count `pause_odds` times."""
    weights = [pause_odds if outcome.is_between_words else 1.0 for outcome in outcomes]
    right = [weight for weight, each in zip(weights, outcomes, strict=True) if each.is_right_with(log_weight)]
    return 100 * sum(right) / sum(weights)


def _build_offset_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """The right completions of each strategy: of all cursors, on and off edges, and by typed characters."""
    groups = {
        "all": list(outcomes),
        "edge": [each for each in outcomes if each.is_on_edge],
        "inside": [each for each in outcomes if not each.is_on_edge],
    }
    for offset in range(1, MAX_OFFSET + 1):
        groups[f"{offset} typed"] = [each for each in outcomes if each.offset == offset]
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


def _build_prior_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """The right completions by the prior's log weight: by place, and by how often users stop between words."""
    groups = {
        "edge": [each for each in outcomes if each.is_on_edge],
        "inside": [each for each in outcomes if not each.is_on_edge],
        "between words": [each for each in outcomes if each.is_between_words],
    }
    return [
        {
            "log weight": weight,
            **{name: find_right_percent(group, weight) for name, group in groups.items()},
            **{f"stops × {odds:g}": find_right_percent(outcomes, weight, odds) for odds in _PAUSE_ODDS},
        }
        for weight in _LOG_WEIGHTS
    ]


if __name__ == "__main__":
    main()
