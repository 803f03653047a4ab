"""A text that the character-level model has read, with how many bits each of its bytes cost."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from midtoken.display.glyphs import Glyph, split_glyphs


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the text, its end included."""

    number: int  # from 1
    glyphs: tuple[Glyph, ...]
    bits: tuple[float, ...]  # [num_glyphs]: of all the glyph's bytes

    @property
    def bits_per_byte(self) -> float:
        """Over the whole line."""
        return math.fsum(self.bits) / sum(glyph.num_bytes for glyph in self.glyphs)


@dataclass(frozen=True, slots=True)
class Reading:
    """A text and its surprisal. No part of it is empty."""

    name: str
    text: bytes
    surprisals: tuple[float, ...]  # [num_bytes] bits

    @property
    def total_bits(self) -> float:
        """Over the whole text."""
        return math.fsum(self.surprisals)

    @property
    def bits_per_byte(self) -> float:
        """Over the whole text."""
        return self.total_bits / len(self.text)

    def split_lines(self) -> Iterator[Line]:
        """The lines in their order."""
        glyphs: list[Glyph] = []
        number = 1
        for glyph in split_glyphs(self.text):
            glyphs.append(glyph)
            if glyph.ends_line:
                yield self._make_line(number, glyphs)
                glyphs, number = [], number + 1
        if glyphs:
            yield self._make_line(number, glyphs)

    def _make_line(self, number: int, glyphs: list[Glyph]) -> Line:
        spans = (self.surprisals[glyph.start : glyph.start + glyph.num_bytes] for glyph in glyphs)
        return Line(number, tuple(glyphs), tuple(map(math.fsum, spans)))
