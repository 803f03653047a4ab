"""Cuts a long text into pieces that are small enough for one request each."""

from collections.abc import Iterator
from dataclasses import dataclass

# The slowest covering takes some seconds for a piece. Each request reads the context of its piece again.
_PIECE_BYTES = 1024
_CONTEXT_BYTES = 64 * 1024  # more than fits into the window of the default model


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A part of a text, and the end of the text before it."""

    context: bytes
    text: bytes


def split_pieces(text: bytes, context: bytes = b"", num_bytes: int = _PIECE_BYTES) -> Iterator[TextPiece]:
    """Yields the pieces of `text` in order. `context` is the text before it.

    No piece is empty. No piece ends inside a character, unless the text is not UTF-8.
    """
    start = 0
    while start < len(text):
        end = _find_boundary(text, start + num_bytes)
        if end <= start:  # not UTF-8
            end = start + num_bytes
        before = text[max(start - _CONTEXT_BYTES, 0) : start]
        yield TextPiece(_take_end(context[-_CONTEXT_BYTES:] + before, _CONTEXT_BYTES), text[start:end])
        start = end


def split_tail(text: bytes, context: bytes = b"", num_bytes: int = _PIECE_BYTES) -> TextPiece:
    """Returns the last piece of `text`. `context` is the text before it."""
    tail = _take_end(text, num_bytes)
    return TextPiece(_take_end(context + text[: len(text) - len(tail)], _CONTEXT_BYTES), tail)


def _take_end(text: bytes, num_bytes: int) -> bytes:
    return text[_find_boundary(text, len(text) - num_bytes) :] if len(text) > num_bytes else text


def _find_boundary(text: bytes, index: int) -> int:
    """Returns the last start of a character at or before `index`; `index` itself if the text is not UTF-8 there."""
    for boundary in range(index, max(index - 4, -1), -1):
        if boundary >= len(text) or not 0x80 <= text[boundary] < 0xC0:
            return min(boundary, len(text))
    return index
