"""Completions at cursors inside identifiers: by typed characters, and on and off the edges of the text's tokens.

It also says whether a prior for "the text stopped here" would pay. Exact healing weighs every way to continue the
typed bytes by the model's probability. If users stop typing at the end of a token more often than elsewhere, the
tokens that begin at the cursor should get more weight. With the log weight `w`, the best of them is chosen if its
probability times exp(w) exceeds that of every token that began before the cursor. The completion is then that of
`Healing.NONE`, else that of `Healing.EXACT`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from benchmarks.corpora.cuts import MAX_OFFSET, Cut
from benchmarks.measures.report import Row
from inference.engine.sink import Completer, WaitingSink
from inference.protocol.completion import CompletionRequest, Explanation, Extent, Healing

_HEALINGS = (Healing.NONE, Healing.GREEDY, Healing.EXACT)
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


def build_request(cut: Cut, healing: Healing, explain: bool = False) -> CompletionRequest:
    """A request for the rest of the cut's run, which does not know the text after the cursor."""
    prefix = cut.find_context(_CONTEXT_CHARS)
    return CompletionRequest(
        prefix, max_tokens=_MAX_TOKENS, healing=healing, extent=Extent.SINGLE_LINE, explain=explain
    )


def iter_outcomes(engine: Completer, tokenizer: Tokenizer, cuts: Iterable[Cut]) -> Iterator[Outcome]:
    """Yields the outcome at each cut. All strategies complete at once, since nothing is timed here."""
    for cut in cuts:
        sinks = {healing: WaitingSink() for healing in _HEALINGS}
        for healing, sink in sinks.items():
            engine.submit(build_request(cut, healing, explain=True), sink)
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


def build_offset_rows(outcomes: Sequence[Outcome]) -> list[Row]:
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
    rights = {str(healing): [each.is_right[healing] for each in outcomes] for healing in _HEALINGS}
    return {
        "cursors": name,
        "number": len(outcomes),
        "on edges": 100 * sum(each.is_on_edge for each in outcomes) / len(outcomes),
        **{healing: 100 * sum(marks) / len(marks) for healing, marks in rights.items()},
        "± (95 %)": 196 * math.sqrt(0.25 / len(outcomes)),
    }


def build_prior_rows(outcomes: Sequence[Outcome]) -> list[Row]:
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
