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

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers
from rich.progress import track
from tokenizers import Tokenizer

from benchmarks.corpora.cuts import MAX_OFFSET, Cut, draw_cuts, draw_cuts_by_offset
from benchmarks.measures.report import Row, find_processor, print_rows, write_report
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import CompletionEngine, WaitingSink, complete
from inference.protocol.completion import CompletionRequest, CompletionStats, Explanation, Extent, Healing
from models.training.corpus import iter_held_out
from models.training.evaluation import measure_bits_per_byte

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    options = _parse_options()
    bits = _measure_bits(options.model)
    cuts = draw_cuts(iter_held_out(), options.identifiers, options.others, options.seed)
    engine = load_engine(EngineConfig(options.model, device=options.device, num_threads=options.threads))
    solved: dict[tuple[Healing, str], list[bool]] = defaultdict(list)
    costs: dict[Healing, list[CompletionStats]] = defaultdict(list)
    for cut in track(cuts, "completing"):
        for healing in _HEALINGS:
            text, stats = complete(engine, _build_request(cut, healing))
            solved[healing, cut.kind].append(cut.is_solved_by(text))
            costs[healing].append(stats)
    offset_cuts = draw_cuts_by_offset(iter_held_out(), options.each_offset, options.seed)
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    outcomes = list(_iter_outcomes(engine, tokenizer, track(offset_cuts, "completing by offset")))
    engine.close()
    rows = [_build_row(healing, solved, costs[healing]) for healing in _HEALINGS]
    print_rows(f"Right rest of the run, {len(cuts)} cursors, {bits:.3f} bits/byte", rows)
    figures: dict[str, float | bool | None] = {"num_cuts": len(cuts), "bits_per_byte": bits}
    for healing, row in zip(_HEALINGS, rows, strict=True):
        for name in ("identifier", "other", "forwards", "ms"):
            figures[f"{name}_{healing}"] = _number(row[name])
    offset_rows, prior_rows = _build_offset_rows(outcomes), _build_prior_rows(outcomes)
    print_rows(f"Right rest of the identifier, %, by typed characters, {len(outcomes)} cursors", offset_rows)
    print_rows("Right, %, by the log weight of the tokens that begin at the cursor", prior_rows)
    figures |= _find_edge_figures(offset_rows)
    device = find_processor() if options.device == "cpu" else options.device
    write_report("accuracy", [*rows, *offset_rows, *prior_rows], figures, _draw(rows), device)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/default"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--identifiers", type=int, default=500)
    parser.add_argument("--others", type=int, default=210)
    parser.add_argument("--each-offset", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _measure_bits(model_dir: Path) -> float:
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    return measure_bits_per_byte(model.eval(), tokenizer.backend_tokenizer)


def _build_row(healing: Healing, solved: dict[tuple[Healing, str], list[bool]], costs: list[CompletionStats]) -> Row:
    by_kind = {kind: marks for (strategy, kind), marks in solved.items() if strategy is healing}
    others = [mark for kind, marks in by_kind.items() if kind != "identifier" for mark in marks]
    times = [stats.total_ms for stats in costs]
    quartiles = statistics.quantiles(times, n=4)
    return {
        "healing": str(healing),
        "identifier": _percent(by_kind["identifier"]),
        "± (95 %)": 196 * math.sqrt(0.25 / len(by_kind["identifier"])),
        "other": _percent(others),
        **{kind: _percent(marks) for kind, marks in by_kind.items() if kind != "identifier"},
        "forwards": statistics.mean(stats.num_healing_forwards or 1 for stats in costs),
        "ms": statistics.median(times),
        "ms, middle half": quartiles[2] - quartiles[0],
        "forwards in all": statistics.mean(stats.num_forwards for stats in costs),
        "tree nodes": statistics.mean(stats.num_tree_nodes for stats in costs),
    }


def _find_edge_figures(offset_rows: list[Row]) -> dict[str, float | bool | None]:
    by_name = {row["cursors"]: row for row in offset_rows}
    wanted = (("edge", "exact"), ("edge", "none"), ("inside", "exact"), ("inside", "none"), ("all", "exact"))
    return {f"{name}_{healing}": _number(by_name[name][healing]) for name, healing in (*wanted, ("all", "greedy"))}


def _percent(marks: list[bool]) -> float:
    return 100 * sum(marks) / len(marks)


def _number(value: object) -> float:
    assert isinstance(value, float | int)
    return round(float(value), 3)


def _draw(rows: list[Row]) -> "Figure":
    from matplotlib.figure import Figure  # here, because only drawing needs it

    figure = Figure(figsize=(6, 3.2))
    axes = figure.add_subplot()
    names = [str(row["healing"]) for row in rows]
    for offset, kind in ((-0.2, "identifier"), (0.2, "other")):
        heights = [_number(row[kind]) for row in rows]
        bars = axes.bar([index + offset for index in range(len(rows))], heights, width=0.38, label=kind)
        axes.bar_label(bars, fmt="%.0f")
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylabel("rest of the run right, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _build_request(cut: Cut, healing: Healing, explain: bool = False) -> CompletionRequest:
    """A request for the rest of the cut's run, which does not know the text after the cursor."""
    prefix = cut.find_context(_CONTEXT_CHARS)
    return CompletionRequest(
        prefix, max_tokens=_MAX_TOKENS, healing=healing, extent=Extent.SINGLE_LINE, explain=explain
    )


def _iter_outcomes(engine: CompletionEngine, tokenizer: Tokenizer, cuts: Iterable[Cut]) -> Iterator[Outcome]:
    """Yields the outcome at each cut. All strategies complete at once, since nothing is timed here."""
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


def find_percent(outcomes: Sequence[Outcome], log_weight: float, pause_odds: float = 1.0) -> float:
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
        "on edges": 100 * sum(each.is_on_edge for each in outcomes) / len(outcomes),
        **{healing: 100 * sum(marks) / len(marks) for healing, marks in rights.items()},
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
            **{name: find_percent(group, weight) for name, group in groups.items()},
            **{f"stops × {odds:g}": find_percent(outcomes, weight, odds) for odds in _PAUSE_ODDS},
        }
        for weight in _LOG_WEIGHTS
    ]


if __name__ == "__main__":
    main()
