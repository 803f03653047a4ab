"""Where a completion begins to repeat itself.

A model that loops writes the same lines, or the same characters of one line, until a limit ends it. The completion ends
after the first period of a repetition as soon as that is certain.

1. Lines: one line stands there four times in a row, or the same two to sixteen lines three times in a row, or seven
   blank lines. The completion ends after their first occurrence. White space at the end of lines does not count.
2. Inside a line, the text before the cursor included: up to 64 characters stand there three times in a row, and at
   least 17 characters are repeated. A *ruler*, without letters, brackets and quotes, must repeat 120 characters.
3. What also stands in the text before the cursor is no loop, but the next row of a table.

While a repetition goes on, but is too short to be certain, what would be cut is not settled. So settled text is never
cut. What is repeated inside a line is settled up to 16 characters, and the completion ends after these: otherwise no
text would be settled before its line ends. If whole lines are sent, the completion ends after one period instead.

The limits are those that real code stays within: closing brackets, numbers and test data repeat themselves too, but not
so often. Whether a text loops depends on the text only, not on how it is split into tokens.
"""

import math
import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MAX_PERIOD_LINES = 16
_NUM_REPEATS_OF_LINE = 3
_NUM_REPEATS_OF_LINES = 2
_NUM_REPEATED_BLANK_LINES = 6
_NUM_KEPT_LINES = _MAX_PERIOD_LINES * (_NUM_REPEATS_OF_LINES + 1)  # the most that one loop of lines has

_MAX_PERIOD_CHARS = 64
_NUM_REPEATS_IN_LINE = 2
_MIN_RULER_CHARS = 120
_NUM_FREE_CHARS = 16  # so many repeated characters are nothing unusual
_NUM_KEPT_CHARS = _MAX_PERIOD_CHARS + max(_MIN_RULER_CHARS, _NUM_REPEATS_IN_LINE * _MAX_PERIOD_CHARS)
_NEAR_CHARS = 8000  # of the text before the cursor
_IN_ROW = re.compile("[^\\W_]|[\"'`()\\[\\]{}<>]")  # no ruler has them


@dataclass(frozen=True, slots=True)
class _Run:
    """The end of a line, as far as each of its characters also stands one period before."""

    start: int  # where the first period begins
    period: str  # the last one
    num_repeated: int  # characters after the first period

    @property
    def free_end(self) -> int:
        """How much may be settled before this becomes a loop."""
        return self.start + len(self.period) * (1 + math.ceil(_NUM_FREE_CHARS / len(self.period)))

    @property
    def is_row(self) -> bool:
        """True if it is no ruler."""
        return _IN_ROW.search(self.period) is not None

    @property
    def is_long(self) -> bool:
        """True if it is repeated so often that it is a loop."""
        is_long = self.is_row or self.num_repeated >= _MIN_RULER_CHARS
        return is_long and self.num_repeated >= _NUM_REPEATS_IN_LINE * len(self.period)


class LoopRule:
    """Finds the end of completions after one prefix."""

    def __init__(self, prefix: str = "") -> None:
        """`prefix`: the text before the cursor."""
        self._before = prefix[-_NEAR_CHARS:]
        self._line_before = self._before.rpartition("\n")[2]

    def find_end(self, text: str, num_added: int, sends_lines: bool = False) -> int | None:
        """Where the completion ends, or None if it is no loop. Before the last `num_added` characters it was none.

        `sends_lines`: of a line, nothing is sent before it is complete.
        """
        whole, num_before = self._line_before + text, len(self._line_before)
        for end in range(len(whole) - num_added + 1, len(whole) + 1):
            part = whole[:end]
            ends_line = part.endswith("\n")
            found = self._find_end_of_lines(part) if ends_line else self._find_end_in_line(part, sends_lines)
            if found is not None:
                return max(found - num_before, 0)
        return None

    def count_settled(self, text: str) -> int:
        """How many of the first characters stay in the completion, however it goes on."""
        whole = self._line_before + text
        *lines, last = whole.rsplit("\n", _NUM_KEPT_LINES + 1)[-_NUM_KEPT_LINES - 1 :]
        contents = [line.rstrip() for line in lines]
        periods = range(1, min(_MAX_PERIOD_LINES, len(lines)) + 1)
        num_possible = [_count_repeated(contents, size) for size in periods if _may_repeat(last, contents[-size])]
        if lines and not last.strip():
            num_possible.append(0)
        ends = [_find_end_before(whole, [*lines[len(lines) - num :], last]) for num in num_possible]
        free_ends = [run.free_end for run in _iter_runs(whole)]
        settled = min([len(whole) - whole.endswith("\r"), *ends, *free_ends])  # a line end may follow "\r"
        return max(settled - len(self._line_before), 0)

    def _find_end_in_line(self, text: str, sends_lines: bool) -> int | None:
        """Where the completion ends if a run that ends with the text is a loop; None if none is."""
        for run in _iter_runs(text):
            if run.is_long and text[-run.num_repeated :] not in self._before:
                if sends_lines and run.is_row:
                    return len(text[: max(run.start, len(self._line_before)) + len(run.period)].rstrip(" \t,"))
                return run.free_end
        return None

    def _find_end_of_lines(self, text: str) -> int | None:
        """Where the completion ends if its last lines, all complete, are a loop; None if they are none."""
        lines = text[:-1].rsplit("\n", _NUM_KEPT_LINES)[-_NUM_KEPT_LINES:]
        contents = [line.rstrip() for line in lines]
        for size in range(1, min(_MAX_PERIOD_LINES, len(lines)) + 1):
            num_repeated = _count_repeated(contents, size)
            if self._is_loop(contents[len(lines) - num_repeated :], size):
                return _find_end_before(text, [*lines[len(lines) - num_repeated :], ""])
        return None

    def _is_loop(self, repeated: list[str], size: int) -> bool:
        """True if these lines, which repeat the `size` lines before them, are enough of them."""
        if not any(repeated):
            return len(repeated) >= _NUM_REPEATED_BLANK_LINES
        if len(repeated) < (_NUM_REPEATS_OF_LINE if size == 1 else _NUM_REPEATS_OF_LINES * size):
            return False
        above = "".join(line.rstrip() + "\n" for line in self._before.split("\n"))
        return "\n".join(repeated) not in above


def _may_repeat(line: str, earlier: str) -> bool:
    """True if the line so far is the beginning of the earlier one, or that and white space."""
    return line.startswith(earlier[: len(line)]) and not line[len(earlier) :].strip()


def _count_repeated(items: Sequence[str], size: int) -> int:
    """How many of the last items equal those that stand `size` items before them."""
    count = 0
    while count + size < len(items) and items[-1 - count] == items[-1 - count - size]:
        count += 1
    return count


def _find_end_before(text: str, lines: list[str]) -> int:
    """The end of the text before its last lines, without blank lines at that end."""
    before = text[: len(text) - len("\n".join(lines))]
    end = before.find("\n", len(before.rstrip()))
    return len(before[:end].removesuffix("\r"))


def _iter_runs(text: str) -> Iterator[_Run]:
    """The runs that the text ends with which have more than the free characters, those with short periods first.

    A long run with a short period also has each multiple of it. These are left out: they begin at the same place,
    repeat less, and may be settled further. Of a line of blanks, each takes as long as the first.
    """
    tail = text[text.rfind("\n") + 1 :][-_NUM_KEPT_CHARS:]
    last = tail[-_NUM_FREE_CHARS - 1 :]
    if len(last) <= _NUM_FREE_CHARS:
        return
    at = end = len(tail) - len(last)
    while (at := tail.rfind(last, max(end - _MAX_PERIOD_CHARS, 0), at + len(last) - 1)) >= 0:
        size = end - at
        num_repeated = _count_repeated_chars(tail, size)
        yield _Run(len(text) - num_repeated - size, tail[-size:], num_repeated)
        if size <= len(last) and size + num_repeated >= _MAX_PERIOD_CHARS + len(last):
            return


def _count_repeated_chars(text: str, size: int) -> int:
    """Like `_count_repeated`, in few steps: this is called for each character of a long run."""
    end = len(text) - size
    return bisect(range(end), False, key=lambda num: not text.endswith(text[-num - 1 :], 0, end))
