"""A text with the surprisal of each byte, from the character-level model."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from midtoken.display.graphemes import Grapheme, split_graphemes


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """A line of the text, including its line end."""

    number: int  # from 1
    graphemes: tuple[Grapheme, ...]
    bits: tuple[float, ...]  # [num_graphemes]: the sum over the grapheme's bytes

    @property
    def bits_per_byte(self) -> float:
        """The mean over the line."""
        return math.fsum(self.bits) / sum(grapheme.num_bytes for grapheme in self.graphemes)


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A non-empty text and its surprisal."""

    name: str
    text: bytes
    surprisals: tuple[float, ...]  # [num_bytes] bits

    @property
    def total_bits(self) -> float:
        """The sum over the text."""
        return math.fsum(self.surprisals)

    @property
    def bits_per_byte(self) -> float:
        """The mean over the text."""
        return self.total_bits / len(self.text)

    def split_lines(self) -> Iterator[ScoredLine]:
        """Yields the lines in order."""
        graphemes: list[Grapheme] = []
        number = 1
        for grapheme in split_graphemes(self.text):
            graphemes.append(grapheme)
            if grapheme.ends_line:
                yield self._make_line(number, graphemes)
                graphemes, number = [], number + 1
        if graphemes:
            yield self._make_line(number, graphemes)

    def _make_line(self, number: int, graphemes: list[Grapheme]) -> ScoredLine:
        spans = (self.surprisals[grapheme.start : grapheme.start + grapheme.num_bytes] for grapheme in graphemes)
        return ScoredLine(number, tuple(graphemes), tuple(map(math.fsum, spans)))
