import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.characters.bundle import END
from inference.characters.utf8 import find_possible, split_text, split_whole_text
from inference.errors import InvalidRequestError


@given(text=st.text(max_size=6), num_cut=st.integers(0, 3))
def test_a_text_that_stops_inside_a_character_keeps_its_bytes(text: str, num_cut: int) -> None:
    data = text.encode()[: len(text.encode()) - num_cut]

    characters, unfinished = split_text(data)

    assert characters.encode() + unfinished == data
    assert text.startswith(characters)
    assert len(unfinished) < 4


def test_bytes_that_are_not_utf8_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidRequestError, match=r"not UTF-8: invalid start byte at b'\\xff'"):
        split_text(b"a\xffb")


def test_a_text_is_split_before_the_first_bytes_that_are_not_utf8() -> None:
    assert split_whole_text(b"a\xffb") == ("a", b"\xffb")
    assert split_whole_text("aé".encode()[:-1]) == ("a", b"\xc3")
    assert split_whole_text(b"ab") == ("ab", b"")


@pytest.mark.parametrize("tail", [b"a", "é".encode()[:1], "€".encode()[:1], "€".encode()[:2], "😀".encode()[:3]])
def test_a_byte_is_possible_exactly_if_some_text_continues_with_it(tail: bytes) -> None:
    def begins_a_character(data: bytes) -> bool:
        endings = [b"", b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\xa0", b"\x90\x80\x80", b"\xa0\x80"]
        return any(_is_utf8(data + ending) for ending in endings)

    possible = find_possible(tail)

    assert [byte for byte in range(256) if possible[byte]] == [
        byte for byte in range(256) if begins_a_character(tail + bytes([byte]))
    ]
    assert possible[END] == _is_utf8(tail)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
