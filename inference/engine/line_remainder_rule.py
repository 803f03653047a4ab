"""Where a completion begins to replace the rest of the cursor's line.

In `asse▏(image, 2)`, a model that is not sure of the rest writes the whole line again: `rtEqual(image, 1)`. What can be
inserted there is the word alone.

The completion ends where the rest may go on:

1. before a piece of the kind that the rest begins with: a word, quotes, or a certain sign;
2. after the word that the cursor is in;
3. before quotes or a bracket that close what the rest closes.

Of these places, it is the first with the fewest brackets and quotes of the line open or surplus.

A rest without words may be brackets that the editor has inserted: it is not replaced. Nor is one that the model has
read before it ended the text itself, or with which the text ends (`inference.engine.suffix_rule`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import regex

from inference.brackets import CLOSER_OF, CLOSERS, QUOTES, count_faults

_NEAR_CHARS = 500  # before the cursor and after it, in which brackets count
_WORD = regex.compile(r"\w+")
_PIECE = regex.compile(r"\w+|[^\w\s]")
_CODE = regex.compile(r"[^\W_]|[^\0-\x7f]")


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
        return count_faults(self.line_before[-_NEAR_CHARS:] + text + self.rest[:_NEAR_CHARS])

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
    if _WORD.match(piece):
        return "a"
    return QUOTES if piece in QUOTES else piece
