"""Added tokens that are ordinary text: a tokenizer finds them in a text before it splits the rest into pre-tokens.

At each position the longest one is found. A text may end with the beginning of one: `foo <ta` before `ble>`. Then no
token boundary after the beginning is certain.
"""

import re
from collections.abc import Iterable, Iterator

from trie_cache.vocabulary import AddedToken


class AddedTexts:
    """Finds the added texts of one tokenizer."""

    def __init__(self, groups: Iterable[Iterable[AddedToken]]) -> None:
        """`groups`: first those that are found first; the others are found in what remains."""
        contents = [[token.content for token in group] for group in groups]
        self._patterns = [_build_pattern(group) for group in contents]
        self._ids = {token.content.encode(): token.token_id for group in groups for token in group}
        self._beginnings = {content[:end] for group in contents for content in group for end in range(1, len(content))}
        self.has_any = bool(self._ids)
        self._max_chars = max([len(content) for group in contents for content in group], default=0)

    def split(self, text: str) -> Iterator[str]:
        """The added texts and what is between them, in order; joined, they are the text."""
        pieces: Iterable[str] = [text]
        for pattern in self._patterns:
            pieces = [part for piece in pieces for part in self._split_once(pattern, piece)]
        return iter(pieces)

    def _split_once(self, pattern: re.Pattern[str], piece: str) -> Iterator[str]:
        if piece.encode() in self._ids:
            yield piece
            return
        start = 0
        for found in pattern.finditer(piece):
            if start < found.start():
                yield piece[start : found.start()]
            yield found[0]
            start = found.end()
        if start < len(piece):
            yield piece[start:]

    def find_id(self, piece: bytes) -> int | None:
        """The token id of an added text; None for any other text."""
        return self._ids.get(piece)

    def find_openings(self, text: str) -> list[int]:
        """Where an added text may begin that goes beyond the end of `text`, as numbers of characters before the end.

        It may always begin at the end itself, unless there are none.
        """
        if not self._ids:
            return []
        lengths = range(1, min(self._max_chars, len(text) + 1))
        hidden = self._find_hidden(text)
        return [0, *(length for length in lengths if text[-length:] in self._beginnings and length not in hidden)]

    def _find_hidden(self, text: str) -> set[int]:
        """The positions inside added texts, where none can begin: whatever follows, the one around them is found first.

        Not if there are two groups, because an added text of the first one may then begin inside one of the second.
        """
        if len(self._patterns) > 1:
            return set()
        hidden: set[int] = set()
        num_chars_after = 0
        for piece in reversed(list(self.split(text))):
            if num_chars_after >= self._max_chars:
                break
            if piece.encode() in self._ids:
                hidden.update(range(num_chars_after + 1, num_chars_after + len(piece)))
            num_chars_after += len(piece)
        return hidden


def _build_pattern(contents: list[str]) -> re.Pattern[str]:
    """Matches the longest of the contents that begins at a position."""
    return re.compile("|".join(map(re.escape, sorted(contents, key=len, reverse=True))))
