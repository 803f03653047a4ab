"""A simple model of a buffer in insert mode with suggestions. Text is bytes with line feeds; a cursor is an offset."""

import re
from dataclasses import dataclass

_CJK, _EMOJI = "\u4e00-\u9fff", "\U0001f300-\U0001faff"
_WORD = re.compile(rf"[ \t\n]*(?:[{_CJK}]+|[{_EMOJI}]+|(?:(?![{_CJK}])\w)+|[^\w \t\n{_EMOJI}]+)?")
_LINE = re.compile(r"\n*[^\n]*")


@dataclass(frozen=True, slots=True)
class Offer:
    """A suggestion, made for the text `before` + `typed` + `replaced` + `after` with the cursor after `typed`.

    `text` begins with `typed`. Accepted, it makes the buffer `before` + `text` + `after`.
    """

    before: bytes
    text: bytes
    replaced: bytes
    after: bytes


class TextModel:
    """The text, the cursor, what is offered, and the texts that undo goes back to."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.cursor = 0
        self.offer: Offer | None = None
        self._undo: list[bytes] = []
        self._block_is_open = False

    @property
    def rest(self) -> bytes | None:
        """What the ghost text must be: what is left of the offer, if the offer fits the text at the cursor."""
        if self.offer is None:
            return None
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        typed = before[len(self.offer.before) :]
        fits = before.startswith(self.offer.before) and after == self.offer.replaced + self.offer.after
        fits = fits and self.offer.text.startswith(typed) and b"\n" not in typed
        return (self.offer.text[len(typed) :] or None) if fits else None

    def type(self, text: bytes) -> None:
        self._replace(self.cursor, self.cursor, text)

    def delete_before(self) -> None:
        """Backspace."""
        before = self.text[: self.cursor].decode()
        if before:
            self._replace(self.cursor - len(before[-1].encode()), self.cursor, b"")

    def delete_after(self) -> None:
        """The key Del. At the end of the text it changes nothing, and Neovim can undo that."""
        after = self.text[self.cursor :].decode()
        if after:
            self._replace(self.cursor, self.cursor + len(after[0].encode()), b"")
        else:
            self._open_block()

    def accept(self) -> bool:
        """Returns False if nothing is shown."""
        return self._accept(re.compile(r".*", re.DOTALL))

    def accept_word(self) -> bool:
        return self._accept(_WORD)

    def accept_line(self) -> bool:
        return self._accept(_LINE)

    def undo(self) -> None:
        """Leaves insert mode and takes back the last block of changes."""
        self.leave()
        if self._undo:
            self.text = self._undo.pop()

    def leave(self) -> None:
        """Leaves insert mode."""
        self.offer = None
        self.close_block()

    def close_block(self) -> None:
        """What follows is undone on its own."""
        self._block_is_open = False

    def _accept(self, part: re.Pattern[str]) -> bool:
        rest, offer = self.rest, self.offer
        if rest is None or offer is None:
            return False
        match = part.match(rest.decode())
        assert match is not None
        accepted = match.group().encode()
        left = rest[len(accepted) :]
        kept = offer.replaced if offer.replaced in left.split(b"\n")[0] else b""
        self.close_block()
        self._replace(self.cursor, self.cursor + len(offer.replaced) - len(kept), accepted)
        self.close_block()
        self.offer = Offer(self.text[: self.cursor], left, kept, offer.after) if left else None
        return True

    def _replace(self, start: int, end: int, text: bytes) -> None:
        old = self.text
        new = old[:start] + text + old[end:]
        if new == old:
            return
        self._open_block()
        self.text, self.cursor = new, start + len(text)
        if self.offer is not None and not _changes_only_its_line(old, new, self.offer):
            self.offer = None

    def _open_block(self) -> None:
        if not self._block_is_open:
            self._undo.append(self.text)
            self._block_is_open = True


def _changes_only_its_line(old: bytes, new: bytes, offer: Offer) -> bool:
    row = offer.before.count(b"\n")
    old_lines, new_lines = old.split(b"\n"), new.split(b"\n")
    same_above = old_lines[:row] == new_lines[:row]
    return len(old_lines) == len(new_lines) and same_above and old_lines[row + 1 :] == new_lines[row + 1 :]
