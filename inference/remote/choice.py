"""The exact greedy choice from the few log probabilities that a server reports after each prompt.

Every token that is not reported is at most as likely as the last one that is. So each crossing has a value or an upper
bound. If the best value exceeds all bounds, it is chosen. Otherwise only what could still win is
asked for: the tokens of its path, and its best allowed token.

Where a token is drawn, or several of the best are wanted, the unreported tokens may weigh no more than a bound. Within
it, what is reported is taken for the whole distribution.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from inference.healing.covering import CoveringTree, Crossing, find_crossing_interval
from inference.model.sampler import SampledToken, find_row
from trie_cache.trie import Trie

# An unreported token counts as so many average ones of its row: of those with the right beginning, several are likely.
# Measured with the bundled model: the estimate is right on average, and off by 0.01 if 100 tokens are reported.
_NUM_AVERAGE = 2
LOGPROB_TOLERANCE = 0.3  # nats, between two answers about one row: logits of 16 bits come in steps of up to 0.125


TopLogprobs = Sequence[Mapping[int, float]]  # of each row: its most likely tokens, with their log probabilities


@dataclass(frozen=True, slots=True)
class TokenQuery:
    """A query about a row: which of some tokens is the most likely, and how likely?"""

    row: int  # as in `SampleRequest.rows`
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Bound:
    """A crossing's best token, and its log probability together with its path: at most so much, if queries are open."""

    crossing: Crossing
    token_id: int
    log_prob: float
    open: tuple[TokenQuery, ...]


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """A token that the inference server has written."""

    token_id: int
    log_prob: float | None  # NaN if it reports nonsense, None if it reports nothing


@dataclass(slots=True)
class KnownLogprobs:
    """What the inference server has reported of the rows of a covering tree, so far."""

    covering: CoveringTree
    trie: Trie
    rows: TopLogprobs
    answers: dict[TokenQuery, tuple[int, float]] = field(default_factory=dict)  # a token id and its log probability

    def choose(self) -> SampledToken | tuple[TokenQuery, ...]:
        """The best crossing and its token, or what must be asked before that is certain.

        Where not all tokens were reported, its log probability is an estimate, within the bounds of what is missing.
        """
        bounds = [self._bound(crossing) for crossing in self.covering.crossings]
        best = max((each for each in bounds if not each.open), key=lambda each: each.log_prob, default=None)
        rivals = [each for each in bounds if each.open and (best is None or each.log_prob >= best.log_prob)]
        if rivals or best is None:
            return tuple(dict.fromkeys(query for each in rivals for query in each.open))
        # The mass of all crossings together; a path that was not reported counts with its bound.
        masses = [self._weigh_path(each, []) + self._estimate_mass(each) for each in self.covering.crossings]
        return SampledToken(best.crossing, best.token_id, best.log_prob - float(np.logaddexp.reduce(masses)))

    def bound_unknown(self, temperature: float) -> float:
        """The most that all choices with tokens that were not reported can weigh together, as a logarithm.

        A choice weighs its probability to the power of 1 / temperature. Above a temperature of 1 there is no bound.
        """
        rests = [-math.inf if temperature <= 1.0 else math.inf]
        for crossing in self.covering.crossings:
            open_queries: list[TokenQuery] = []
            log_path = self._weigh_path(crossing, open_queries)
            reported = [0.0] if open_queries else [*self.rows[find_row(crossing.node)].values()]
            left = 1.0 if open_queries else 1.0 - sum(map(math.exp, reported))
            if left > 0:
                rests.append((log_path + min(reported)) / temperature - min(reported) + math.log(left))
        return float(np.logaddexp.reduce(rests))

    def weigh(self, choice: SampledToken) -> float:
        """The log probability of a choice; if it was not reported, no more than the bound of all that were not."""
        reported = self.rows[find_row(choice.crossing.node)]
        return self._weigh_path(choice.crossing, []) + reported.get(choice.token_id, -math.inf)

    def _estimate_mass(self, crossing: Crossing) -> float:
        """The logarithm of the probability of all tokens that may follow at a crossing."""
        reported, allowed = self.rows[find_row(crossing.node)], self._find_allowed(crossing)
        if not allowed:
            return 0.0
        answer = self.answers.get(TokenQuery(find_row(crossing.node), allowed))
        known = [reported[each] for each in allowed if each in reported] if answer is None else [answer[1]]
        left = max(1.0 - sum(map(math.exp, reported.values())), 0.0)
        average = left / max(self.trie.num_tokens - len(reported), 1)
        each = min(_NUM_AVERAGE * average, math.exp(min([*reported.values(), *known])))
        others = min((len(allowed) - len(known)) * each, left)
        return float(np.logaddexp.reduce([*known, math.log(others) if others > 0 else -math.inf]))

    def _weigh_path(self, crossing: Crossing, open_queries: list[TokenQuery]) -> float:
        """The log probability of the path to a crossing: at most so much, if something must be asked for."""
        tree, log_prob = self.covering.tree, 0.0
        for branch in tree.find_path(crossing.node):
            query = TokenQuery(find_row(tree.parents[branch]), (tree.branch_ids[branch],))
            log_prob += self._find_best(query, open_queries)[1]
        return log_prob

    def _find_allowed(self, crossing: Crossing) -> tuple[int, ...]:
        if not crossing.remaining_bytes:
            return ()
        interval = find_crossing_interval(self.trie, crossing.remaining_bytes)
        return tuple(self.trie.order[interval.lo : interval.hi].tolist())

    def _bound(self, crossing: Crossing) -> _Bound:
        open_queries: list[TokenQuery] = []
        log_prob = self._weigh_path(crossing, open_queries)
        allowed = self._find_allowed(crossing)
        token_id, last = self._find_best(TokenQuery(find_row(crossing.node), allowed), open_queries)
        return _Bound(crossing, token_id, log_prob + last, tuple(open_queries))

    def _find_best(self, query: TokenQuery, open_queries: list[TokenQuery]) -> tuple[int, float]:
        """The most likely of the query's tokens; of any, if it names none. A bound if it must be asked for."""
        if query in self.answers:
            return self.answers[query]
        reported = self.rows[query.row]
        found = [token_id for token_id in query.token_ids or reported if token_id in reported]
        if found:
            token_id = max(found, key=lambda each: reported[each])
            return token_id, reported[token_id]
        open_queries.append(query)
        return -1, min(reported.values(), default=math.inf)
