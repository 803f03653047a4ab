"""A long text as pieces that one request each can take."""

from collections.abc import Iterator
from dataclasses import dataclass

_PIECE_BYTES = 1024  # some seconds with the slowest coverings; what stands before a piece is read again
_CONTEXT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the text, and the text before it, as much as any model here can see."""

    context: bytes
    text: bytes


def split_pieces(text: bytes, context: bytes = b"", num_bytes: int = _PIECE_BYTES) -> Iterator[Piece]:
    """The pieces of a text that stands after `context`. None is empty, and none ends in the middle of a character."""
    start = 0
    while start < len(text):
        end = _find_cut(text, start + num_bytes)
        if end <= start:  # not UTF-8 at all
            end = start + num_bytes
        before = text[max(start - _CONTEXT_BYTES, 0) : start]
        yield Piece(_take_end(context[-_CONTEXT_BYTES:] + before, _CONTEXT_BYTES), text[start:end])
        start = end


def split_tail(text: bytes, context: bytes = b"", num_bytes: int = _PIECE_BYTES) -> Piece:
    """The end of a text that stands after `context`."""
    tail = _take_end(text, num_bytes)
    return Piece(_take_end(context + text[: len(text) - len(tail)], _CONTEXT_BYTES), tail)


def _take_end(text: bytes, num_bytes: int) -> bytes:
    return text[_find_cut(text, len(text) - num_bytes) :] if len(text) > num_bytes else text


def _find_cut(text: bytes, place: int) -> int:
    """The last beginning of a character at or before the place; the place itself where none is near."""
    for cut in range(place, max(place - 4, -1), -1):
        if cut >= len(text) or not 0x80 <= text[cut] < 0xC0:
            return min(cut, len(text))
    return place
