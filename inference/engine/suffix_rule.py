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

A completion may also replace the rest of the cursor's line. In `asse▏(image, 2)`, a model that is not sure of the rest
writes the whole line again: `rtEqual(image, 1)`. What can be inserted there is the word alone. The completion ends
where the rest may go on:

1. before a piece of the kind that the rest begins with: a word, quotes, or a certain sign;
2. after the word that the cursor is in;
3. before quotes or a bracket that close what the rest closes.

Of these places, it is the first with the fewest brackets and quotes of the line open or surplus. A rest without words
may be brackets that the editor has inserted: it is not replaced. Nor is one that the model was given before it ended
the text itself, or with which the text ends.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import regex

from inference.brackets import CLOSER_OF, CLOSERS, QUOTES, count_bracket_faults, count_faults
from inference.engine.stopping import find_beginning

_NUM_CERTAIN_LINES = 3
_NEAR_CHARS = 2000  # of the text before and after a place; the rest is not compared, and its brackets do not count
_NEAR_LINE_CHARS = 500  # of the cursor's line before and after the cursor, in which brackets count
_WORD = regex.compile(r"\w+")
_PIECE = regex.compile(r"\w+|[^\w\s]")
_CODE = regex.compile(r"[^\W_]|[^\0-\x7f]")


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
        lines = list(self._iter_lines(text)) if self.line_remainder or self.lines_below else []
        for number, line in enumerate(lines):
            at = None if is_open and not line.is_complete else self._find_start_in(text, line)
            following = lines[number + 1 : number + _NUM_CERTAIN_LINES]
            is_rest = bool(self.line_remainder) and line.start == 0
            if at is None or not (is_rest or self._agrees(following)):
                continue
            if self._count_faults(text[: line.end]) < self._count_faults(text[:at]):
                continue  # what follows is not the suffix, but stands before it
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

    def _count_faults(self, text: str) -> int:
        """The brackets that are open or surplus around the cursor, with this text."""
        return count_bracket_faults((self.near_prefix + text[-_NEAR_CHARS:])[-_NEAR_CHARS:] + self.near_suffix)


def build_suffix_rule(prefix: str, suffix: str) -> SuffixRule:
    """The rule for completions between `prefix` and `suffix`."""
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


@dataclass(frozen=True, slots=True)
class LineRemainderRule:
    """Finds the end of completions of one line."""

    line_before: str  # the cursor's line up to the cursor
    rest: str  # of that line, without white space at its end

    def find_end(self, text: str) -> int | None:
        """Where a completion that has ended begins to replace the rest; None if it does not, or has several lines."""
        places = [] if "\n" in text else list(self._iter_places(text))
        return min(places, key=lambda at: (self._count_faults(text[:at]), at), default=None)

    def count_settled(self, text: str) -> int:
        """How many of the first characters stay, however the text goes on."""
        if "\n" in text:
            return len(text)
        is_apart = self.rest[:1].isspace() and _CODE.search(self.rest)
        return min([*self._iter_places(text), len(text.rstrip() if is_apart else text)])

    def _count_faults(self, text: str) -> int:
        return count_faults(self.line_before[-_NEAR_LINE_CHARS:] + text + self.rest[:_NEAR_LINE_CHARS])

    def _iter_places(self, text: str) -> Iterator[int]:
        """The places in `text` where the rest may go on."""
        first, word = _PIECE.search(self.rest), _WORD.match(text)
        if first is None or not _CODE.search(self.rest):
            return
        if word and _WORD.match(self.line_before[-1:]) and not _WORD.match(self.rest):
            yield word.end()
        num_open = 0
        for piece in _PIECE.finditer(text):
            sign, at = piece[0], piece.start()
            if at > 0 and _find_kind(sign) == _find_kind(first[0]):
                yield len(text[:at].rstrip()) if first.start() > 0 else at
            num_open += (sign in CLOSER_OF) - (sign in CLOSERS)
            is_closing = num_open < 0 if sign in CLOSERS else sign in QUOTES and self.line_before.count(sign) % 2
            if is_closing and sign in self.rest:
                yield at
                return


def _find_kind(piece: str) -> str:
    """The same for all words, and for all quotes."""
    return "a" if _WORD.match(piece) else QUOTES if piece in QUOTES else piece
