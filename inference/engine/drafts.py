"""Drafts: guesses of the next tokens, which one pass verifies together.

Text repeats itself. If the last tokens stand earlier in the sequence too, what followed them there may follow here. The
guess is forwarded as a branch, and its nodes are then known: as long as the choices agree with it, they need no pass of
their own. The choices themselves are made as without a guess, so greedy completions are the same, and sampled ones come
from the same distribution, with the same draws.

More rows make a pass slower, so a guess must bring more tokens than it costs, in passes over one row. How many were
right is counted for each length of the match, and decides whether and how far to guess.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

MAX_DRAFT_TOKENS = 8
_NUM_SOUGHT = 3  # tokens, of which there are few places to compare; if there is none, fewer are sought
_MAX_MATCH = 16
_ROW_COST = 0.1  # of a pass over one row, unless the model says more
_FIRST_GAIN = 2.0
_RATE = 0.1  # of the running average
_TRIAL_PERIOD = 16  # a kind of match that does not pay is tried again so often


class Drafter:
    """Proposes drafts, and learns which pay. Used by the engine's thread only."""

    def __init__(self, row_cost: float = _ROW_COST) -> None:
        """`row_cost`: see `LanguageModel`."""
        self._row_cost = row_cost
        self._gains = [_FIRST_GAIN] * (_MAX_MATCH + 1)  # by the length of the match
        self._num_skipped = [0] * (_MAX_MATCH + 1)

    def propose(self, token_ids: Sequence[int]) -> "Draft | None":
        """The guess of what follows the tokens; None if nothing matches, or guessing does not pay."""
        found = find_earlier(token_ids)
        if found is None:
            return None
        end, num_matching = found
        gain = self._gains[num_matching]
        num_tokens = min(MAX_DRAFT_TOKENS, 2 + int(1.5 * gain))
        if gain < self._row_cost * num_tokens:
            self._num_skipped[num_matching] += 1
            if self._row_cost >= 1 or self._num_skipped[num_matching] % _TRIAL_PERIOD:
                return None
        return Draft(self, tuple(token_ids[end : end + num_tokens]), num_matching)

    def learn(self, draft: "Draft") -> None:
        """Counts how many of a draft's tokens were chosen, when it has ended."""
        self._gains[draft.num_matching] += _RATE * (draft.num_right - self._gains[draft.num_matching])


@dataclass(slots=True)
class Draft:
    """Guessed tokens. Only those that are forwarded are followed."""

    drafter: Drafter
    token_ids: tuple[int, ...]
    num_matching: int  # tokens before them that stand earlier too
    num_right: int = 0

    def follow(self, token_id: int) -> bool:
        """Compares the next guess with the token that was chosen. Returns whether it was right."""
        is_right = self.num_right < len(self.token_ids) and self.token_ids[self.num_right] == token_id
        self.num_right += is_right
        return is_right


def find_earlier(token_ids: Sequence[int]) -> tuple[int, int] | None:
    """Where the last tokens stand earlier: the end of that place, and how many tokens agree before it.

    The latest of the longest matches, of which `_MAX_MATCH` tokens are compared; None if not even the last one agrees.
    """
    data = array("i", token_ids).tobytes()
    width = len(data) // max(len(token_ids), 1)
    best: tuple[int, int] | None = None
    for num_sought in range(min(_NUM_SOUGHT, len(token_ids) - 1), 0, -1):
        pattern = data[-num_sought * width :]
        at = data.rfind(pattern, 0, len(data) - width)
        while at >= 0:
            if at % width == 0:
                end = at // width + num_sought
                num_matching = _count_matching(token_ids, end)
                if best is None or num_matching > best[1]:
                    best = end, num_matching
                if num_sought < _NUM_SOUGHT or num_matching == _MAX_MATCH:  # none is longer
                    return best
            at = data.rfind(pattern, 0, at + len(pattern) - 1)
        if best is not None:
            return best
    return None


def _count_matching(token_ids: Sequence[int], end: int) -> int:
    """How many of the tokens before `end` agree with the last ones."""
    limit = min(_MAX_MATCH, end)
    for count in range(1, limit):
        if token_ids[end - count - 1] != token_ids[-count - 1]:
            return count
    return limit
