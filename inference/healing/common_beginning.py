"""How much of two texts, or of two token strings, is the same at their beginnings."""

from typing import TypeVar

Comparable = TypeVar("Comparable", str, list[int])

_FIRST_LENGTH = 16


def count_common(first: Comparable, second: Comparable) -> int:
    """How many of the first items are equal.

    Often one is the beginning of the other. Otherwise slices are compared: first longer and longer ones, since copying
    those takes the time, then of half the length each time.
    """
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    low, high = 0, min(_FIRST_LENGTH, limit)
    while first[low:high] == second[low:high]:  # they differ before `limit`
        low, high = high, min(2 * high, limit)
    high -= 1
    while low < high:  # the first `low` are equal; those after `high` are not compared
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
