"""How much of two texts, or of two token strings, is the same at their beginnings."""

from typing import TypeVar

Comparable = TypeVar("Comparable", str, list[int])


def count_common(first: Comparable, second: Comparable) -> int:
    """How many of the first items are equal. Compares slices, of half the length each time."""
    low, high = 0, min(len(first), len(second))
    while low < high:  # the first `low` are equal; those after `high` are not compared
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
