"""Texts with a gap, from files that the default model was not trained on: identifiers, ends of lines, whole lines."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.corpora.cuts import draw_cuts
from models.training.corpus import SourceFile

_MIN_LINES_BEFORE = 10
_MIN_LINE_CHARS = 6
_MAX_GAP_LINES = 3


class GapKind(StrEnum):
    """What is missing."""

    IDENTIFIER = "identifier"  # the rest of an identifier
    LINE = "line"  # the rest of a line, from anywhere behind its indentation
    BLOCK = "block"  # one to three whole lines, from behind the indentation of the first


@dataclass(frozen=True, slots=True)
class Gap:
    """A text without its middle, which a completion should write."""

    kind: GapKind
    prefix: str
    middle: str
    suffix: str

    def is_filled_by(self, completion: str) -> bool:
        """True if the completion is right.

        For an identifier, it begins with the rest, and the identifier ends there. Otherwise it is the middle, white
        space at its end aside.
        """
        if self.kind is GapKind.IDENTIFIER:
            return completion.startswith(self.middle) and not _is_word(completion[len(self.middle) :][:1])
        return completion.rstrip() == self.middle.rstrip()

    def has_first_line_of(self, completion: str) -> bool:
        """True if the completion's first line is the middle's."""
        return completion.partition("\n")[0].rstrip() == self.middle.partition("\n")[0].rstrip()

    def is_repeated_by(self, completion: str) -> bool:
        """True if the completion ends with the beginning of the suffix where the middle does not.

        That is the rest of the cursor's line or, if it is blank, the next line that is not; the whole of that line.
        A rest of closing brackets may rightly stand twice: in `f(g(▏)`, the completion `x)` is no repeat. It is not
        counted if the line then has as many more opening than closing brackets as the file's own line.
        """
        rest, _, below = self.suffix.partition("\n")
        if rest.strip():
            is_at_end = completion.rstrip().endswith(rest.rstrip()) and not self.middle.rstrip().endswith(rest.rstrip())
            is_closing = _find_depth(rest) < 0 and not any(map(str.isalnum, rest))
            return is_at_end and not (is_closing and _find_depth(completion) == _find_depth(self.middle))
        next_line = next((line.rstrip() for line in below.split("\n") if line.strip()), None)
        return self._find_last_line(completion) == next_line != self._find_last_line(self.middle)

    def _find_last_line(self, text: str) -> str:
        return (self.prefix + text).rstrip().rpartition("\n")[2]


def draw_gaps(files: Iterable[SourceFile], counts: dict[GapKind, int], seed: int) -> list[Gap]:
    """Draws seeded gaps, so many of each kind."""
    files, rng = list(files), random.Random(seed)
    cuts = draw_cuts(files, counts[GapKind.IDENTIFIER], 0, seed)
    gaps = [Gap(GapKind.IDENTIFIER, cut.prefix, cut.run_end, cut.suffix) for cut in cuts]
    texts = [file.text for file in files if file.text.count("\n") > 2 * _MIN_LINES_BEFORE and "\r" not in file.text]
    for kind in (GapKind.LINE, GapKind.BLOCK):
        gaps += [_draw_lines(rng.choice(texts), kind, rng) for _ in range(counts[kind])]
    return gaps


def _draw_lines(text: str, kind: GapKind, rng: random.Random) -> Gap:
    lines = text.splitlines(keepends=True)
    num_lines = 1 if kind is GapKind.LINE else rng.randint(1, _MAX_GAP_LINES)
    first = rng.choice(
        [
            number
            for number in range(_MIN_LINES_BEFORE, len(lines) - num_lines)
            if len(lines[number].strip()) >= _MIN_LINE_CHARS and lines[number + num_lines - 1].strip()
        ]
    )
    gap = "".join(lines[first : first + num_lines]).removesuffix("\n")
    indent = len(gap) - len(gap.lstrip())
    at = indent if kind is GapKind.BLOCK else rng.randrange(indent + 1, len(gap.rstrip()))
    return Gap(kind, "".join(lines[:first]) + gap[:at], gap[at:], "\n" + "".join(lines[first + num_lines :]))


def _find_depth(text: str) -> int:
    return sum((char in "([{") - (char in ")]}") for char in text)


def _is_word(text: str) -> bool:
    return text == "_" or text.isalnum()
