"""The exact greedy choice from a few log probabilities of each row, where an engine does not give whole rows.

A row tells its most likely tokens, and every other token is at most as likely as the last of them. So each crossing has
a value or an upper bound. If the best value exceeds all bounds, it is chosen. Otherwise only what could still win is
asked for: the tokens of its path, and its best allowed token.

Where a token is drawn, or several of the best are wanted, what was not told may weigh no more than a bound, and the
rows are taken for whole ones if that changes nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from inference.healing.covering import CoveringTree, Crossing, find_crossing_interval
from inference.model.language_model import Choice
from inference.model.path_weights import find_row
from trie_cache.trie import Trie

# A token that was not told counts as so many average ones of its row: of those with the right beginning, several are
# likely. Measured with the default model: the estimate is right on average, and wrong by 0.01 if 100 tokens are told.
_NUM_AVERAGE = 2
GAP = 0.3  # nats, between two answers about one row: logits of 16 bits come in steps of up to 0.125


@dataclass(frozen=True, slots=True)
class Probe:
    """A query about a row: which of some tokens is the most likely, and how likely?"""

    row: int  # as in `SampleRequest.rows`
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Bound:
    """A crossing's best token, and its log probability together with its path: at most so much, if probes are open."""

    crossing: Crossing
    token_id: int
    log_prob: float
    open: tuple[Probe, ...]


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """What an engine tells of some rows at once."""

    rows: Sequence[Mapping[int, float]]  # of each row: its most likely tokens, with their log probabilities
    num_read_tokens: int = 0  # that it did not remember


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """A token that an engine has written."""

    token_id: int
    log_prob: float | None  # NaN if the engine tells nonsense, None if it tells nothing


@dataclass(slots=True)
class KnownLogprobs:
    """What an engine has told of the rows of a covering tree, so far."""

    covering: CoveringTree
    trie: Trie
    rows: Sequence[Mapping[int, float]]  # as in `TopLogprobs`
    answers: dict[Probe, tuple[int, float]] = field(default_factory=dict)  # a token id and its log probability

    def choose(self) -> Choice | tuple[Probe, ...]:
        """The best crossing and its token, or what must be asked before that is certain.

        Its log probability is an estimate where not all tokens were told. It lies within the bounds of what was not.
        """
        bounds = [self._bound(crossing) for crossing in self.covering.crossings]
        best = max((each for each in bounds if not each.open), key=lambda each: each.log_prob, default=None)
        rivals = [each for each in bounds if each.open and (best is None or each.log_prob >= best.log_prob)]
        if rivals or best is None:
            return tuple(dict.fromkeys(probe for each in rivals for probe in each.open))
        return Choice(best.crossing, best.token_id, best.log_prob - self._estimate_total())

    def bound_unknown(self, temperature: float) -> float:
        """The most that all choices with tokens that were not told can weigh together, as a logarithm.

        A choice weighs its probability to the power of 1 / temperature. Above a temperature of 1 there is no bound.
        """
        rests = [-math.inf if temperature <= 1.0 else math.inf]
        for crossing in self.covering.crossings:
            open_probes: list[Probe] = []
            log_path = self._weigh_path(crossing, open_probes)
            told = [0.0] if open_probes else [*self.rows[find_row(crossing.node)].values()]
            left = 1.0 if open_probes else 1.0 - sum(map(math.exp, told))
            if left > 0:
                rests.append((log_path + min(told)) / temperature - min(told) + math.log(left))
        return float(np.logaddexp.reduce(rests))

    def weigh(self, choice: Choice) -> float:
        """The log probability of a choice; if it was not told, no more than the bound of all that were not."""
        told = self.rows[find_row(choice.crossing.node)]
        return self._weigh_path(choice.crossing, []) + told.get(choice.token_id, -math.inf)

    def _estimate_total(self) -> float:
        """The logarithm of the mass of all crossings together. A path that was not told counts with its bound."""
        masses = [self._weigh_path(each, []) + self._estimate_mass(each) for each in self.covering.crossings]
        return float(np.logaddexp.reduce(masses))

    def _estimate_mass(self, crossing: Crossing) -> float:
        """The logarithm of the probability of all tokens that may follow at a crossing."""
        told, allowed = self.rows[find_row(crossing.node)], self._find_allowed(crossing)
        if not allowed:
            return 0.0
        answer = self.answers.get(Probe(find_row(crossing.node), allowed))
        known = [told[each] for each in allowed if each in told] if answer is None else [answer[1]]
        left = max(1.0 - sum(map(math.exp, told.values())), 0.0)
        average = left / max(self.trie.num_tokens - len(told), 1)
        each = min(_NUM_AVERAGE * average, math.exp(min([*told.values(), *known])))
        others = min((len(allowed) - len(known)) * each, left)
        return float(np.logaddexp.reduce([*known, math.log(others) if others > 0 else -math.inf]))

    def _weigh_path(self, crossing: Crossing, open_probes: list[Probe]) -> float:
        """The log probability of the path to a crossing: at most so much, if something must be asked for."""
        tree, log_prob = self.covering.tree, 0.0
        for branch in tree.find_path(crossing.node):
            probe = Probe(find_row(tree.parents[branch]), (tree.branch_ids[branch],))
            log_prob += self._find_best(probe, open_probes)[1]
        return log_prob

    def _find_allowed(self, crossing: Crossing) -> tuple[int, ...]:
        if not crossing.remaining_bytes:
            return ()
        interval = find_crossing_interval(self.trie, crossing.remaining_bytes)
        return tuple(self.trie.order[interval.lo : interval.hi].tolist())

    def _bound(self, crossing: Crossing) -> _Bound:
        open_probes: list[Probe] = []
        log_prob = self._weigh_path(crossing, open_probes)
        allowed = self._find_allowed(crossing)
        token_id, last = self._find_best(Probe(find_row(crossing.node), allowed), open_probes)
        return _Bound(crossing, token_id, log_prob + last, tuple(open_probes))

    def _find_best(self, probe: Probe, open_probes: list[Probe]) -> tuple[int, float]:
        """The most likely of the probe's tokens; of any, if it names none. A bound if it must be asked for."""
        if probe in self.answers:
            return self.answers[probe]
        told = self.rows[probe.row]
        among = [token_id for token_id in probe.token_ids or told if token_id in told]
        if among:
            token_id = max(among, key=lambda each: told[each])
            return token_id, told[token_id]
        open_probes.append(probe)
        return -1, min(told.values(), default=math.inf)
