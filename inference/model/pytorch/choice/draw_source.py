"""The random source of a candidate: a seed and a count. The numbers themselves are computed on the device."""

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence

from inference.model.language_model import RandomSource

_NUM_SEEDS = 2**63


class DrawSource:
    """A random source. The same seed gives the same draws."""

    __slots__ = ("num_draws", "seed")

    def __init__(self, seed: int | None) -> None:
        """`None` seeds it from the system."""
        self.seed = secrets.randbelow(_NUM_SEEDS) if seed is None else seed % _NUM_SEEDS
        self.num_draws = 0  # those that became choices


def list_offsets(sources: Sequence[RandomSource | None]) -> Iterator[tuple[int, int]]:
    """The seed and the number of the next draw of each source. A source may be there several times."""
    counts: Counter[int] = Counter()
    for source in sources:
        assert isinstance(source, DrawSource), "TorchSampler.new_random_source made it"
        yield source.seed, source.num_draws + counts[id(source)]
        counts[id(source)] += 1


def count_draws(sources: Sequence[RandomSource | None]) -> None:
    """Counts a draw of each source. Draws whose results are not used are not counted, and are drawn again."""
    for source in sources:
        assert isinstance(source, DrawSource), "TorchSampler.new_random_source made it"
        source.num_draws += 1
