import pytest

from inference.protocol.characters import END
from midtoken.display.byte_names import ByteName, find_unfinished, name_byte


@pytest.mark.parametrize(
    ("unfinished", "byte", "name"),
    [
        (b"", END, ByteName("end of text", "")),
        (b"", ord("\t"), ByteName("⇥", "0x09")),
        (b"", 0xC3, ByteName("\\xc3", "0xc3, byte 1 of a character")),
        (b"\xc3", 0xA9, ByteName("é", "0xa9, the last of 2 bytes")),
        (b"\xe6", 0x97, ByteName("\\x97", "0x97, byte 2 of a character")),
    ],
)
def test_each_byte_has_a_readable_name(unfinished: bytes, byte: int, name: ByteName) -> None:
    assert name_byte(byte, unfinished) == name


@pytest.mark.parametrize(
    ("text", "unfinished"), [(b"", b""), (b"a", b""), ("日".encode(), b""), (b"a\xe6\x97", b"\xe6\x97"), (b"\xff", b"")]
)
def test_only_an_incomplete_character_at_the_end_is_unfinished(text: bytes, unfinished: bytes) -> None:
    assert find_unfinished(text) == unfinished
