"""Splitting long texts into requests."""

from hypothesis import given
from hypothesis import strategies as st

from midtoken.text_pieces import split_pieces, split_tail


@given(st.text().map(lambda text: text.encode(errors="ignore")), st.integers(4, 9))
def test_the_pieces_joined_are_the_text_and_split_no_character(text: bytes, num_bytes: int) -> None:
    pieces = list(split_pieces(text, num_bytes=num_bytes))
    assert b"".join(piece.text for piece in pieces) == text
    assert all(0 < len(piece.text) <= num_bytes and piece.text.decode() for piece in pieces)


@given(st.binary(), st.integers(1, 9))
def test_bytes_that_are_not_utf8_are_split_too(text: bytes, num_bytes: int) -> None:
    assert b"".join(piece.text for piece in split_pieces(text, num_bytes=num_bytes)) == text


def test_the_context_of_a_piece_is_the_text_before_it() -> None:
    pieces = list(split_pieces(b"abcdef", b"ctx ", num_bytes=4))
    assert [(piece.context, piece.text) for piece in pieces] == [(b"ctx ", b"abcd"), (b"ctx abcd", b"ef")]


def test_the_context_is_limited_and_starts_at_a_character() -> None:
    *_, last = split_pieces("é".encode() * 100_000)
    assert 65_000 < len(last.context) <= 65_540
    assert last.context.decode()


def test_the_text_before_the_tail_is_its_context() -> None:
    piece = split_tail(b"abcdef", b"ctx ", num_bytes=4)
    assert (piece.context, piece.text) == (b"ctx ab", b"cdef")


def test_the_tail_of_a_short_text_is_the_whole_text() -> None:
    piece = split_tail(b"ab")
    assert (piece.context, piece.text) == (b"", b"ab")
