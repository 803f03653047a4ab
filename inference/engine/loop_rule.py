"""Where a completion begins to repeat itself.

A model that loops writes the same lines, or the same characters of one line, until a limit ends it. The completion ends
before the repetition as soon as that is certain.

1. Lines: one line stands there four times in a row, or the same two to sixteen lines three times in a row, or seven
   blank lines. The completion ends after their first occurrence. White space at the end of lines does not count.
2. Inside a line: up to 64 characters are repeated without a gap, at least three times and for at least 120 characters.
   The completion keeps so many of the repeats that they have 16 characters, and at least one.

While a repetition goes on, but is too short to be certain, what would be cut is not settled. So settled text is never
cut. The limits are those that real code stays within: tables, rulers, closing brackets and test data repeat themselves
too, but not so often.

Whether a text loops depends on the text only, not on how it is split into tokens. The work for a token does not grow
with the text.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

_MAX_UNIT_LINES = 16
_NUM_REPEATS_OF_LINE = 3
_NUM_REPEATS_OF_LINES = 2
_NUM_REPEATED_BLANK_LINES = 6
_NUM_KEPT_LINES = _MAX_UNIT_LINES * (_NUM_REPEATS_OF_LINES + 1)  # the most that one loop of lines has

_MAX_UNIT_CHARS = 64
_NUM_REPEATS_IN_LINE = 3
_MIN_REPEATED_CHARS = 120
_NUM_FREE_CHARS = 16  # so many repeated characters are nothing unusual
_NUM_KEPT_CHARS = _MAX_UNIT_CHARS + max(_MIN_REPEATED_CHARS, _NUM_REPEATS_IN_LINE * _MAX_UNIT_CHARS)


@dataclass(frozen=True, slots=True)
class _Line:
    """A complete line."""

    content: str  # without white space at its end; the first line with the text before the cursor
    body_end: int  # where the completion ends if the loop begins with the next line


@dataclass(frozen=True, slots=True)
class _Run:
    """The end of a line, as far as each of its characters also stands `num_unit_chars` before."""

    num_unit_chars: int
    num_repeated: int

    @property
    def num_surplus(self) -> int:
        """How many of the last characters are cut if this becomes a loop."""
        return self.num_repeated - self.num_unit_chars * math.ceil(_NUM_FREE_CHARS / self.num_unit_chars)

    @property
    def is_loop(self) -> bool:
        return self.num_repeated >= max(_MIN_REPEATED_CHARS, _NUM_REPEATS_IN_LINE * self.num_unit_chars)


class LoopRule:
    """Follows the text of one candidate."""

    def __init__(self, line_before: str = "") -> None:
        """`line_before` is the cursor's line up to the cursor."""
        self._lines: deque[_Line] = deque(maxlen=_NUM_KEPT_LINES)
        self._line_before = line_before  # empty after the first line
        self._line_start = 0  # of the last line, in the text
        self._line = ""  # the last line, without the text before the cursor

    def add(self, text: str) -> int | None:
        """Adds text. Returns where the completion ends, or None if it is no loop so far."""
        first, *others = text.split("\n")
        end = self._extend_line(first)
        for piece in others:
            end = self._end_line() if end is None else end
            end = self._extend_line(piece) if end is None else end
        return end

    def count_settled(self) -> int:
        """How many of the first characters stay in the completion, however it goes on."""
        num_chars = self._line_start + len(self._line)
        settled = num_chars - self._line.endswith("\r")  # it may belong to a line end
        repeated = [size for size in self._list_sizes() if _may_repeat(self._line, self._lines[-size].content)]
        first_repeated = [self._count_repeated(size) for size in repeated]
        if self._lines and not self._line.strip():
            first_repeated.append(0)
        if first_repeated:
            settled = min(settled, self._lines[-1 - max(first_repeated)].body_end)
        surplus = max((run.num_surplus for run in _iter_runs(self._line[-_NUM_KEPT_CHARS:])), default=0)
        return min(settled, num_chars - max(surplus, 0))

    def _extend_line(self, piece: str) -> int | None:
        self._line += piece
        for end in range(len(self._line) - len(piece) + 1, len(self._line) + 1):
            for run in _iter_runs(self._line[max(end - _NUM_KEPT_CHARS, 0) : end]):
                if run.is_loop:
                    return self._line_start + end - run.num_surplus
        return None

    def _end_line(self) -> int | None:
        is_blank = bool(self._lines) and not self._line.strip()
        line_end = self._line_start + len(self._line) - self._line.endswith("\r")
        body_end = self._lines[-1].body_end if is_blank else line_end
        self._lines.append(_Line((self._line_before + self._line).rstrip(), body_end))
        self._line_start += len(self._line) + 1
        self._line_before = self._line = ""
        ends = (
            self._lines[-1 - self._count_repeated(size)].body_end for size in self._list_sizes() if self._is_loop(size)
        )
        return next(ends, None)

    def _list_sizes(self) -> range:
        """The numbers of lines that may be repeated."""
        return range(1, min(_MAX_UNIT_LINES, len(self._lines)) + 1)

    def _count_repeated(self, size: int) -> int:
        """How many of the last complete lines equal those that stand `size` lines before them."""
        count = 0
        while (
            count + size < len(self._lines)
            and self._lines[-1 - count].content == self._lines[-1 - count - size].content
        ):
            count += 1
        return count

    def _is_loop(self, size: int) -> bool:
        num_repeated = self._count_repeated(size)
        if not any(self._lines[-1 - number].content for number in range(size)):
            return num_repeated >= _NUM_REPEATED_BLANK_LINES
        return num_repeated >= (_NUM_REPEATS_OF_LINE if size == 1 else _NUM_REPEATS_OF_LINES * size)


def _may_repeat(line: str, earlier: str) -> bool:
    """True if the line so far is the beginning of the earlier one, or that and white space."""
    return line.startswith(earlier[: len(line)]) and not line[len(earlier) :].strip()


def _iter_runs(tail: str) -> Iterator[_Run]:
    """The runs at the end of `tail` with more than the free characters, those of multiples of a unit left out."""
    last = tail[-_NUM_FREE_CHARS - 1 :]
    if len(last) <= _NUM_FREE_CHARS:
        return
    place = len(tail) - len(last)
    lowest = max(place - _MAX_UNIT_CHARS, 0)
    at = tail.rfind(last, lowest, -1)
    sizes: list[int] = []
    while at >= 0:
        size = place - at
        if not any(size % smaller == 0 for smaller in sizes):
            sizes.append(size)
            yield _Run(size, _count_repeated(tail, size))
        at = tail.rfind(last, lowest, at + len(last) - 1)


def _count_repeated(tail: str, size: int) -> int:
    count = _NUM_FREE_CHARS + 1
    while count + size < len(tail) and tail[-1 - count] == tail[-1 - count - size]:
        count += 1
    return count
