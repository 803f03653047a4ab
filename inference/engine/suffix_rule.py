"""Where a completion has reached the text after the cursor and begins to write it again.

The suffix begins with the rest of the cursor's line. If that is blank, it begins with the next line that is not. A
line of the completion may be that beginning: it ends with the rest of the line, or it equals the next line, indentation
included.

1. The rest of the line, at the end of the completion's first line: the completion ends before it.
2. Anywhere else the line may rightly stand twice (`pass`, `}`, `return x`). So what follows it must agree too: it is
   the suffix if two further lines of the completion are those of the suffix, or if the completion ends before they
   differ.
3. Brackets decide otherwise: in `f(g(▏)` a completion `x)` closes a bracket that the suffix leaves open. The completion
   is not cut if the text around the cursor has fewer open or surplus brackets with the whole of it.
4. If the model read the suffix and chose to end the text itself, lines that equal the next one stay, except at the
   beginning of the completion, and a rest that closes brackets or quotes is only cut if fewer of them are open or
   surplus without it.

Blank lines and white space at the end of lines, and so carriage returns, do not count in comparisons.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import dropwhile

from inference.brackets import CLOSER_OF, CLOSERS, count_bracket_faults, count_faults, count_quote_faults
from inference.engine.stopping import find_beginning

_NUM_CERTAIN_LINES = 3
_NEAR_CHARS = 2000  # of the text before and after a place; the rest is not compared, and its brackets do not count


class Ending(Enum):
    """Whether the completion goes on after the text so far."""

    OPEN = auto()  # it may
    LIMITED = auto()  # it ended at a line end, a stop string, or a limit; or its model did not read the suffix
    CHOSEN = auto()  # the model, which read the suffix, ended it here


class _Agreement(Enum):
    """Whether the completion from some line on is the suffix."""

    SAME = auto()
    DIFFERENT = auto()
    UNDECIDED = auto()


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the completion: its place in the text, without the line feed."""

    start: int
    end: int
    is_complete: bool  # a line feed follows it


@dataclass(frozen=True, slots=True)
class _Start:
    """A place in the completion where the suffix may begin again."""

    line: _Line
    at: int  # the completion ends here if it does
    agreement: _Agreement


@dataclass(frozen=True, slots=True)
class SuffixRule:
    """Finds the end of completions between one prefix and one suffix."""

    near_prefix: str
    near_suffix: str
    remaining_line: str  # of the cursor's line, without white space at its end; empty if it is blank
    lines_below: tuple[str, ...]  # that are not blank, without white space at their end

    @property
    def line_before(self) -> str:
        """The cursor's line up to the cursor."""
        return self.near_prefix[self.near_prefix.rfind("\n") + 1 :]

    @property
    def _closes_or_opens(self) -> bool:
        """True if the rest of the line closes or opens brackets or quotes."""
        return count_faults(self.remaining_line) > 0

    def find_end(self, text: str, ending: Ending, num_passed: int = 0) -> int | None:
        """Where `text` has reached the suffix, or None if it has not, or not yet for certain.

        `num_passed`: what `count_passed` returned for a beginning of `text`.
        """
        start = self._find_first(text, ending, num_passed)  # while it is undecided, no later one is certain
        return start.at if start is not None and start.agreement is _Agreement.SAME else None

    def count_passed(self, text: str, num_passed: int = 0) -> int:
        """How many of the first characters, all in whole lines, need not be searched while the text goes on."""
        start = self._find_first(text, Ending.OPEN, num_passed)
        return text.rfind("\n") + 1 if start is None else start.line.start

    def count_settled(self, text: str, num_passed: int = 0) -> int:
        """How many of the first characters stay in the completion, however it goes on.

        In the last line, brackets are not counted: what may be the suffix is not settled even where they forbid a cut.
        """
        start = self._find_first(text, Ending.OPEN, num_passed)
        if start is not None:
            return start.at
        line_start = text.rfind("\n") + 1
        if self.remaining_line:
            return self._find_possible_rest(text, line_start)
        if not self.lines_below:
            return len(text)
        may_be_first = self._may_be_first_below(text[line_start:], is_first=line_start == 0)
        return len(text[:line_start].rstrip() if may_be_first else text.rstrip())

    def _find_possible_rest(self, text: str, line_start: int) -> int:
        """Where the line that begins at `line_start` may end, if it goes on to the rest of the cursor's line."""
        rest = self.remaining_line
        at = find_beginning(text, rest, line_start)
        whole = text[line_start:].rstrip()
        if whole.endswith(rest):  # blanks may follow
            at = line_start + len(whole) - len(rest)
        has_brackets = CLOSERS.union(CLOSER_OF).intersection(rest)
        while has_brackets and at - len(rest) >= line_start and text.endswith(rest, line_start, at):
            at -= len(rest)
        return at

    def _may_be_first_below(self, line: str, is_first: bool) -> bool:
        """True if `line` may become the line below."""
        before = self.line_before if is_first else ""
        content = line.rstrip()
        below = self.lines_below[0]
        return below.startswith(before + line) or (content != "" and before + content == below)

    def _find_first(self, text: str, ending: Ending, num_passed: int = 0) -> _Start | None:
        """The first place where the suffix may begin again."""
        for line in _iter_lines(text, num_passed):
            if not line.is_complete and ending is Ending.OPEN:
                return None
            at = self._find_start(text, line)
            if at is None:
                continue
            is_first = bool(self.remaining_line) and line.start == 0
            agreement = _Agreement.SAME if is_first else self._compare(text, line, ending)
            if agreement is not _Agreement.DIFFERENT and not self._is_needed(text[: line.end], at, ending):
                return _Start(line, self._skip_repeats(text[:at], line.start), agreement)
        return None

    def _find_start(self, text: str, line: _Line) -> int | None:
        """Where the suffix begins in `line`, if its end is the rest of the cursor's line, or it is the line below."""
        content = text[line.start : line.end].rstrip()
        if self.remaining_line:
            at = line.start + len(content.removesuffix(self.remaining_line))
            return at if content.endswith(self.remaining_line) else None
        whole = (self.line_before if line.start == 0 else "") + content
        if not content or not self.lines_below or whole != self.lines_below[0]:
            return None
        return len(text[: line.start].rstrip())

    def _is_needed(self, text: str, at: int, ending: Ending) -> bool:
        """True if `text[at:]` is not the suffix, but stands before it."""
        is_chosen = ending is Ending.CHOSEN
        if is_chosen and not self.remaining_line and at > 0:
            return True
        before = self._find_near(text[:at])
        if is_chosen and self._closes_or_opens:
            return self._count_faults(before + text[at:]) <= self._count_faults(before)
        whole, cut = self._count_bracket_faults(before + text[at:]), self._count_bracket_faults(before)
        if not self.remaining_line and "\n" not in text:  # without `text`, the line before the cursor is not complete
            cut = count_bracket_faults(self.near_prefix.removesuffix(self.line_before) + self.near_suffix)
        return whole < cut

    def _skip_repeats(self, text: str, line_start: int) -> int:
        """The end of `text`, before further repeats of the rest of the line that brackets speak against."""
        size, end = len(self.remaining_line), len(text)
        while size and end - size >= line_start and text.endswith(self.remaining_line, 0, end):
            before = self._find_near(text[: end - size])
            if self._count_bracket_faults(before) >= self._count_bracket_faults(before + self.remaining_line):
                break
            end -= size
        return end

    def _find_near(self, text: str) -> str:
        """The text before the cursor and `text`, without what is far from its end."""
        return (self.near_prefix + text[-_NEAR_CHARS:])[-_NEAR_CHARS:]

    def _count_faults(self, before: str) -> int:
        """The faults of the brackets before and in the suffix, and of the quotes on the line that it continues."""
        return self._count_bracket_faults(before) + count_quote_faults(before.rpartition("\n")[2] + self.remaining_line)

    def _count_bracket_faults(self, before: str) -> int:
        return count_bracket_faults(before + self.near_suffix)

    def _compare(self, text: str, start: _Line, ending: Ending) -> _Agreement:
        """Compares the lines after `start`, the suffix's first line, with those that the suffix has there."""
        first = None if self.remaining_line else self.lines_below[0]
        expected = list(dropwhile(lambda line: line == first, self.lines_below))
        num_same = 1
        for line in _iter_lines(text, start.end + 1):
            content = text[line.start : line.end].rstrip()
            if not content or (content == first and num_same == 1):  # the first line may be repeated several times
                continue
            if first and num_same == 1 and ending is Ending.OPEN and not line.is_complete and first.startswith(content):
                return _Agreement.UNDECIDED  # it may become the first line once more
            if not expected:
                return _Agreement.DIFFERENT
            below = expected.pop(0)
            if content != below and (line.is_complete or not below.startswith(content)):
                return _Agreement.DIFFERENT
            num_same += line.is_complete
            if num_same >= _NUM_CERTAIN_LINES:
                return _Agreement.SAME
        return _Agreement.UNDECIDED if ending is Ending.OPEN else _Agreement.SAME


def build_suffix_rule(prefix: str, suffix: str) -> SuffixRule | None:
    """The rule for completions between `prefix` and `suffix`; None for a blank suffix."""
    if not suffix.strip():
        return None
    near_suffix = suffix[:_NEAR_CHARS]
    remaining_line, *below = near_suffix.split("\n")
    if below and len(suffix) > _NEAR_CHARS:
        below.pop()  # it may be incomplete
    return SuffixRule(
        near_prefix=prefix[-_NEAR_CHARS:],
        near_suffix=near_suffix,
        remaining_line=remaining_line.rstrip(),
        lines_below=tuple(line.rstrip() for line in below if line.strip()),
    )


def _iter_lines(text: str, start: int) -> Iterator[_Line]:
    """The lines of the text from the line at `start` on."""
    while (end := text.find("\n", start)) >= 0:
        yield _Line(start, end, is_complete=True)
        start = end + 1
    if start <= len(text):
        yield _Line(start, len(text), is_complete=False)
