"""Prompt lookup: draft tokens that one forward pass verifies together.

Text repeats itself. If the last tokens also occur earlier in the sequence, what followed them there may follow here.
The draft is forwarded as a branch. As long as the choices agree with it, they need no pass of their own. The choices
are made as without a draft, so greedy completions are the same, and sampled ones come from the same distribution, with
the same random numbers.

More tokens make a pass slower. So a draft has at most one token more than agree before it, and there is none where a
longer pass costs too much.
"""

from array import array
from collections.abc import Sequence

MAX_DRAFT_TOKENS = 8
_MIN_MATCH, _MAX_MATCH = 2, 16
_MAX_ROW_COST = 0.5  # of a row more, in passes over one


def propose(token_ids: Sequence[int], row_cost: float) -> tuple[int, ...]:
    """The guess of what follows the tokens; empty if nothing matches. `row_cost`: see `LanguageModel`."""
    found = find_earlier(token_ids) if row_cost <= _MAX_ROW_COST else None
    if found is None:
        return ()
    end, num_matching = found
    return tuple(token_ids[end : end + min(num_matching + 1, MAX_DRAFT_TOKENS)])


def find_earlier(token_ids: Sequence[int]) -> tuple[int, int] | None:
    """Where the last tokens occur earlier: the end of that place, and how many tokens agree before it.

    The latest of the longest matches, of which `_MAX_MATCH` tokens are compared; None if fewer than `_MIN_MATCH` agree.
    """
    data = array("i", token_ids).tobytes()
    width = len(data) // max(len(token_ids), 1)
    pattern = data[-_MIN_MATCH * width :]
    best: tuple[int, int] | None = None
    at = data.rfind(pattern, 0, len(data) - width) if len(token_ids) > _MIN_MATCH else -1
    while at >= 0 and (best is None or best[1] < _MAX_MATCH):
        if at % width == 0:
            end = at // width + _MIN_MATCH
            num_matching = _count_matching(token_ids, end)
            if best is None or num_matching > best[1]:
                best = end, num_matching
        at = data.rfind(pattern, 0, at + len(pattern) - 1)
    return best


def _count_matching(token_ids: Sequence[int], end: int) -> int:
    """How many of the tokens before `end` agree with the last ones."""
    limit = min(_MAX_MATCH, end)
    for count in range(1, limit):
        if token_ids[end - count - 1] != token_ids[-count - 1]:
            return count
    return limit
