"""Where a completion begins to repeat itself.

A model that loops writes the same lines, or the same characters of one line, until a limit ends it. The completion ends
after the first period of a repetition as soon as that is certain.

1. Lines: one line stands there four times in a row, or the same two to sixteen lines three times in a row, or seven
   blank lines. The completion ends after their first occurrence. White space at the end of lines does not count.
2. Inside a line, the text before the cursor included: up to 64 characters stand there three times in a row, and at
   least 17 characters are repeated. The completion ends where the first item of this *row* does: `"a"` of `"a", "a", `.
   A *ruler*, without letters, brackets (`<` and `>` are two) and quotes, must repeat 120 characters, and 16 of them
   are kept.
3. What also stands in the text before the cursor is no loop, but the next row of a table.
4. At the limit of tokens, one occurrence less is enough for lines and rows that go on, and any length for a ruler: the
   signs of real ones have tokens of several, so those end before the limit.

While a repetition goes on, but is too short to be certain, what would be cut is not settled. So settled text is never
cut. If single tokens are sent, what a row repeats is settled up to 16 characters, and the completion ends after these:
otherwise no text would be settled before its line ends.

The limits are those that real code stays within: closing brackets, numbers and test data repeat themselves too, but not
so often. Whether a text loops depends on the text only, not on how it is split into tokens. The work for a token does
not grow with the text.
"""

import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from inference.brackets import CLOSER_OF, CLOSERS, QUOTES
from inference.likely_text import is_word

_MAX_UNIT_LINES = 16
_NUM_REPEATS_OF_LINE = 3
_NUM_REPEATS_OF_LINES = 2
_NUM_REPEATED_BLANK_LINES = 6
_NUM_KEPT_LINES = _MAX_UNIT_LINES * (_NUM_REPEATS_OF_LINES + 1)  # the most that one loop of lines has

_MAX_UNIT_CHARS = 64
_NUM_REPEATS_IN_LINE = 2
_MIN_RULER_CHARS = 120
_NUM_FREE_CHARS = 16  # so many repeated characters are nothing unusual
_NUM_KEPT_CHARS = _MAX_UNIT_CHARS + max(_MIN_RULER_CHARS, _NUM_REPEATS_IN_LINE * _MAX_UNIT_CHARS)
_NEAR_CHARS = 8000  # of the text before the cursor
_IN_ROW = re.compile("[^\\W_]|[\"'`()\\[\\]{}<>]")  # no ruler has them
# A line goes on after these words.
_JOINS = re.compile(r"(?<!\w)(and|or|not|in|is|if|else|for|from|as|of|to|with|the|a|an|return|await|lambda)\Z")


@dataclass(frozen=True, slots=True)
class _Line:
    """A complete line."""

    content: str  # without white space at its end; the first line with the text before the cursor
    body_end: int  # where the completion ends if the loop begins with the next line


@dataclass(frozen=True, slots=True)
class _Run:
    """The end of a part of a line, as far as each of its characters also stands `num_unit_chars` before."""

    end: int  # its place in the line
    unit: str  # the last one
    num_repeated: int

    @property
    def num_unit_chars(self) -> int:
        """The length of the period."""
        return len(self.unit)

    @property
    def start(self) -> int:
        """Where the first unit begins in the line."""
        return self.end - self.num_repeated - self.num_unit_chars

    @property
    def free_end(self) -> int:
        """How much of the line may be settled before this becomes a loop."""
        return self.start + self.num_unit_chars * (1 + math.ceil(_NUM_FREE_CHARS / self.num_unit_chars))

    @property
    def is_row(self) -> bool:
        """True if it is no ruler."""
        return _IN_ROW.search(self.unit) is not None

    def repeats(self, num_times: int) -> bool:
        """True if its unit is repeated so often, and a ruler's for long enough, unless it has reached the limit."""
        is_long = self.is_row or num_times < _NUM_REPEATS_IN_LINE or self.num_repeated >= _MIN_RULER_CHARS
        return is_long and self.num_repeated >= num_times * self.num_unit_chars


class LoopRule:
    """Follows the text of one candidate."""

    def __init__(self, prefix: str = "", sends_lines: bool = False) -> None:
        """`prefix`: the text before the cursor. `sends_lines`: of a line, nothing is sent before it is complete."""
        self._before = prefix[-_NEAR_CHARS:]
        self.sends_lines = sends_lines  # may become false before a part of a line is sent
        self._lines: deque[_Line] = deque(maxlen=_NUM_KEPT_LINES)
        self._line = self._before.rpartition("\n")[2]  # the last line; the first with the text before the cursor
        self._line_start = -len(self._line)  # of the last line, in the text

    def add(self, text: str) -> int | None:
        """Adds text. Returns where the completion ends, or None if it is no loop so far."""
        first, *others = text.split("\n")
        end = self._extend_line(first)
        for piece in others:
            end = self._end_line() if end is None else end
            end = self._extend_line(piece) if end is None else end
        return end

    def find_end_at_limit(self) -> int | None:
        """Where the completion ends if no more text may be added: None if it does not go on to repeat itself."""
        sizes = [size for size in self._list_possible() if self._is_loop(size, num_missing=1)]
        if sizes:
            return self._lines[-1 - self._count_repeated(sizes[0])].body_end
        return self._find_end_in_line(len(self._line), _NUM_REPEATS_IN_LINE - 1)

    def count_settled(self) -> int:
        """How many of the first characters stay in the completion, however it goes on."""
        num_chars = self._line_start + len(self._line)
        settled = num_chars - self._line.endswith("\r")  # it may belong to a line end
        first_repeated = [self._count_repeated(size) for size in self._list_possible()]
        if self._lines and not self._line.strip():
            first_repeated.append(0)
        if first_repeated:
            settled = min(settled, self._lines[-1 - max(first_repeated)].body_end)
        free_ends = [self._line_start + run.free_end for run in _iter_runs(self._line, len(self._line))]
        return max(min([settled, *free_ends]), 0)

    def _extend_line(self, piece: str) -> int | None:
        self._line += piece
        for end in range(len(self._line) - len(piece) + 1, len(self._line) + 1):
            found = self._find_end_in_line(end, _NUM_REPEATS_IN_LINE)
            if found is not None:
                return found
        return None

    def _find_end_in_line(self, end: int, num_times: int) -> int | None:
        """Where the completion ends if a run that ends at `end` of the line is a loop; None if none is."""
        for run in _iter_runs(self._line, end):
            if run.repeats(num_times) and self._line[end - run.num_repeated : end] not in self._before:
                return self._find_end_before(run)
        return None

    def _find_end_before(self, run: _Run) -> int:
        """Where the completion ends before a loop."""
        if not self.sends_lines or not run.is_row:
            return max(self._line_start + run.free_end, 0)
        end = _find_item_end(self._line, run, max(-self._line_start, 0))
        kept = self._line[:end].rstrip()
        is_blank = bool(self._lines) and not kept
        return self._lines[-1].body_end if is_blank else max(self._line_start + len(kept), 0)

    def _end_line(self) -> int | None:
        is_blank = bool(self._lines) and not self._line.strip()
        line_end = max(self._line_start + len(self._line) - self._line.endswith("\r"), 0)
        body_end = self._lines[-1].body_end if is_blank else line_end
        self._lines.append(_Line(self._line.rstrip(), body_end))
        self._line_start += len(self._line) + 1
        self._line = ""
        sizes = (size for size in self._list_sizes() if self._is_loop(size))
        return next((self._lines[-1 - self._count_repeated(size)].body_end for size in sizes), None)

    def _list_sizes(self) -> range:
        """The numbers of lines that may be repeated."""
        return range(1, min(_MAX_UNIT_LINES, len(self._lines)) + 1)

    def _list_possible(self) -> list[int]:
        """Those of them that the last line goes on to repeat."""
        return [size for size in self._list_sizes() if _may_repeat(self._line, self._lines[-size].content)]

    def _count_repeated(self, size: int) -> int:
        """How many of the last complete lines equal those that stand `size` lines before them."""
        count = 0
        while (
            count + size < len(self._lines)
            and self._lines[-1 - count].content == self._lines[-1 - count - size].content
        ):
            count += 1
        return count

    def _is_loop(self, size: int, num_missing: int = 0) -> bool:
        """True if the last `size` lines are repeated often enough. `num_missing`: so many times less is enough."""
        num_repeated = self._count_repeated(size)
        contents = [line.content for line in self._lines]
        if not any(contents[-size:]):
            return num_repeated >= _NUM_REPEATED_BLANK_LINES
        num_times = _NUM_REPEATS_OF_LINE if size == 1 else _NUM_REPEATS_OF_LINES
        if num_repeated < (num_times - num_missing) * size:
            return False
        above = "".join(line.rstrip() + "\n" for line in self._before.split("\n"))
        return "\n".join(contents[-num_repeated:]) not in above


def _may_repeat(line: str, earlier: str) -> bool:
    """True if the line so far is the beginning of the earlier one, or that and white space."""
    return line.startswith(earlier[: len(line)]) and not line[len(earlier) :].strip()


def _iter_runs(line: str, end: int) -> Iterator[_Run]:
    """The runs that end there with more than the free characters, those of multiples of a unit left out."""
    tail = line[max(end - _NUM_KEPT_CHARS, 0) : end]
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
            yield _Run(end, tail[-size:], _count_repeated(tail, size))
        at = tail.rfind(last, lowest, at + len(last) - 1)


def _count_repeated(tail: str, size: int) -> int:
    count = _NUM_FREE_CHARS + 1
    while count + size < len(tail) and tail[-1 - count] == tail[-1 - count - size]:
        count += 1
    return count


def _find_item_end(line: str, run: _Run, typed_end: int) -> int:
    """Where the first item of a row ends that stands after the place `typed_end` of the line.

    It is what the first comma follows. If none does, the item ends with a unit, or where the last item in a unit does.
    If no item ends there, it is what stands before the row.
    """
    size = run.num_unit_chars
    begin = max(run.start, typed_end)
    ends = list(_iter_item_ends(line, begin, begin + size))
    before_comma = [end for end in ends if line[end : end + 1] == ","]
    unit_end = run.start + size * ((begin - run.start) // size + 1)
    if before_comma or unit_end in ends:
        return before_comma[0] if before_comma else unit_end
    return max(ends, default=max(_iter_item_ends(line, typed_end, begin), default=typed_end))


def _iter_item_ends(line: str, start: int, end: int) -> Iterator[int]:
    """Where `line[start:end]` may end: after a word, a closing bracket or quotes, with nothing left open."""
    open_quotes = (each for each in QUOTES if each in line[start:end] and line.count(each, 0, start) % 2)
    quote, depth = next(open_quotes, ""), 0
    for at in range(start, end):
        char = line[at]
        if char in QUOTES:
            quote = "" if char == quote else quote or char
        elif not quote:
            depth += (char in CLOSER_OF) - (char in CLOSERS and depth > 0)
        is_end = char in QUOTES or char in CLOSERS or (is_word(char) and not is_word(line[at + 1 : at + 2]))
        if is_end and not quote and not depth and not _JOINS.search(line, start, at + 1):
            yield at + 1
