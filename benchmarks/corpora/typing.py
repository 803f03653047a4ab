"""What an editor sends while somebody writes code: keys, each of which edits a document or moves the cursor.

`benchmarks.corpora.typist` draws them from files that the bundled model was not trained on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class KeyKind(StrEnum):
    """What a key does."""

    LETTER = "letter"  # inserts a character of a word
    WORD_END = "word end"  # inserts a blank or a mark
    NEWLINE = "newline"  # inserts a line end, and the indentation that editors add to it
    BACKSPACE = "backspace"  # deletes the character before the cursor
    DELETE = "delete"  # deletes selected text
    ACCEPT = "accept"  # inserts the rest of a word or of a line at once, as a suggestion does
    MOVE = "move"  # moves the cursor by a character or a line
    JUMP = "jump"  # moves the cursor to another place or document


@dataclass(frozen=True, slots=True)
class Key:
    """One key. Offsets are in characters."""

    document: int  # index into Session.documents
    kind: KeyKind
    start: int  # `text` replaces the text from `start` to `end`; all empty if the key only moves the cursor
    end: int
    text: str
    cursor: int  # after the key
    gap_s: float  # the time since the key before
    is_first: bool = False  # whether it is the first edit after a jump or an acceptance; a jump opens each document

    @property
    def is_edit(self) -> bool:
        """True if the key changes the text. Then the editor asks for a completion."""
        return self.end > self.start or self.text != ""

    def apply(self, text: str) -> str:
        """Returns the document's text after the key."""
        return text[: self.start] + self.text + text[self.end :] if self.is_edit else text


@dataclass(frozen=True, slots=True)
class Moment:
    """A document after a key."""

    key: Key
    text: str

    @property
    def prefix(self) -> str:
        """The text before the cursor."""
        return self.text[: self.key.cursor]

    @property
    def suffix(self) -> str:
        """The text after the cursor."""
        return self.text[self.key.cursor :]


@dataclass(frozen=True, slots=True)
class Session:
    """The documents that somebody works on, and all keys in their order."""

    documents: tuple[str, ...]  # their texts before the first key
    keys: tuple[Key, ...]

    def iter_moments(self) -> Iterator[Moment]:
        """Yields the document of each key as it is after the key."""
        texts = [*self.documents]
        for key in self.keys:
            texts[key.document] = key.apply(texts[key.document])
            yield Moment(key, texts[key.document])

    def iter_edits(self) -> Iterator[Moment]:
        """Yields the moments at which the editor asks for a completion."""
        return (moment for moment in self.iter_moments() if moment.key.is_edit)
