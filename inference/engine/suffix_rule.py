"""Where a completion has reached the text after the cursor and begins to write it again.

The suffix begins with the rest of the cursor's line. If that is blank, it begins with the next line that is not. A
line of the completion may be that beginning: it ends with the rest of the line, or it equals the next line, indentation
included.

1. The rest of the line, at the end of the completion's first line: the completion ends before it.
2. Anywhere else the line may rightly stand twice (`pass`, `}`, `return x`). So what follows it must agree, too: two
   further lines of the completion are those of the suffix, or the completion ends before they differ.
3. Brackets decide otherwise: in `f(g(▏)` a completion `x)` closes a bracket that the suffix leaves open. The completion
   is not cut if the text around the cursor has fewer open or surplus brackets with the whole of it.

Blank lines and white space at the end of lines, and so carriage returns, do not count in comparisons.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from inference.brackets import count_bracket_faults
from inference.engine.stopping import find_beginning

_NUM_CERTAIN_LINES = 3
_NEAR_CHARS = 2000  # of the text before and after a place; the rest is not compared, and its brackets do not count


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the completion that is not blank, without white space at its end."""

    start: int
    end: int
    content: str  # the first line with the cursor's line before it
    is_complete: bool  # a line feed follows it


@dataclass(frozen=True, slots=True)
class SuffixRule:
    """Finds the end of completions between one prefix and one suffix."""

    near_prefix: str
    near_suffix: str
    line_remainder: str  # the suffix up to its first line feed, without white space at its end
    lines_below: tuple[str, ...]  # the lines of `near_suffix` after it that are not blank

    @property
    def line_before(self) -> str:
        """The cursor's line up to the cursor."""
        return self.near_prefix[self.near_prefix.rfind("\n") + 1 :]

    def find_end(self, text: str, is_open: bool = False) -> int | None:
        """Where `text` has reached the suffix, or None if it has not. `is_open`: it may go on, so only if certain."""
        found = self._find_start(text, is_open)
        return found[0] if found is not None and (found[1] or not is_open) else None

    def count_settled(self, text: str) -> int:
        """How many of the first characters stay in the completion, however it goes on.

        In the last line, brackets are not counted: what may be the suffix is not settled even where they forbid a cut.
        """
        found, line_start = self._find_start(text, is_open=True), text.rfind("\n") + 1
        if found is not None:
            return found[0]
        if self.line_remainder:
            num_chars = len(text[line_start:].rstrip()) - len(self.line_remainder)
            is_there = text[line_start:].rstrip().endswith(self.line_remainder)
            return line_start + num_chars if is_there else find_beginning(text, self.line_remainder, line_start)
        if not self.lines_below:
            return len(text)
        last = (self.line_before if line_start == 0 else "") + text[line_start:]
        may_be_below = self.lines_below[0].startswith(last) or self.lines_below[0] == last.rstrip()
        return len((text[:line_start] if may_be_below else text).rstrip())

    def _find_start(self, text: str, is_open: bool) -> tuple[int, bool] | None:
        """The first place where the suffix may begin again, and whether that is certain."""
        lines = list(self._iter_lines(text))
        for number, line in enumerate(lines):
            at = None if is_open and not line.is_complete else self._find_start_in(text, line)
            following = lines[number + 1 : number + _NUM_CERTAIN_LINES]
            is_rest = bool(self.line_remainder) and line.start == 0
            if at is None or not (is_rest or self._agrees(following)) or self._is_needed(text[: line.end], at):
                continue
            return at, is_rest or (len(following) == _NUM_CERTAIN_LINES - 1 and following[-1].is_complete)
        return None

    def _find_start_in(self, text: str, line: _Line) -> int | None:
        """Where the suffix begins in `line`, if its end is the rest of the cursor's line, or it is the line below."""
        if self.line_remainder:
            at = line.end - len(self.line_remainder)
            return at if text[line.start : line.end].endswith(self.line_remainder) else None
        return len(text[: line.start].rstrip()) if self.lines_below[:1] == (line.content,) else None

    def _iter_lines(self, text: str) -> Iterator[_Line]:
        """The lines of the completion that are not blank."""
        start, before = 0, self.line_before
        for line in re.findall(r"[^\n]*\n|[^\n]+", text):
            content = (before + line).rstrip()
            if line.strip():
                yield _Line(start, start + len(line.rstrip()), content, line.endswith("\n"))
            start, before = start + len(line), ""

    def _agrees(self, following: list[_Line]) -> bool:
        """True if the lines that follow the suffix's first line are those of the suffix. The last may be incomplete."""
        below = self.lines_below[not self.line_remainder :][: len(following)]
        pairs = zip(following, below, strict=False)
        return len(below) == len(following) and all(
            line.content == expected or (not line.is_complete and expected.startswith(line.content))
            for line, expected in pairs
        )

    def _is_needed(self, text: str, at: int) -> bool:
        """True if `text[at:]` is not the suffix, but stands before it."""
        return self._count_faults(text) < self._count_faults(text[:at])

    def _count_faults(self, text: str) -> int:
        """The brackets that are open or surplus around the cursor, with this text."""
        return count_bracket_faults((self.near_prefix + text[-_NEAR_CHARS:])[-_NEAR_CHARS:] + self.near_suffix)


def build_suffix_rule(prefix: str, suffix: str) -> SuffixRule | None:
    """The rule for completions between `prefix` and `suffix`; None for a blank suffix."""
    if not suffix.strip():
        return None
    near_suffix = suffix[:_NEAR_CHARS]
    line_remainder, *below = near_suffix.split("\n")
    if below and len(suffix) > _NEAR_CHARS:
        below.pop()  # it may be incomplete
    return SuffixRule(
        near_prefix=prefix[-_NEAR_CHARS:],
        near_suffix=near_suffix,
        line_remainder=line_remainder.rstrip(),
        lines_below=tuple(line.rstrip() for line in below if line.strip()),
    )
