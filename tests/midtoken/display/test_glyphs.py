"""What stands in one place on the screen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtoken.display.glyphs import mark_blanks, split_glyphs


@given(st.binary() | st.text().map(lambda text: text.encode(errors="ignore")))
def test_the_glyphs_are_the_text_in_order(data: bytes) -> None:
    glyphs = list(split_glyphs(data))
    assert b"".join(data[glyph.start : glyph.start + glyph.num_bytes] for glyph in glyphs) == data
    assert "".join(glyph.chars for glyph in glyphs) == data.decode(errors="surrogateescape")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("aé日", ["a", "é", "日"]),
        ("e\u0301x", ["e\u0301", "x"]),  # a letter and the accent on it
        ("👩\u200d💻!", ["👩\u200d💻", "!"]),
        ("👍🏽", ["👍🏽"]),
        ("a\r\nb\n", ["a", "⏎", "b", "⏎"]),
        ("\r\r\n", ["␍", "⏎"]),
        ("\ta", ["\t", "a"]),
        ("\x00\x1b\x7f", ["␀", "␛", "␡"]),
        (
            "\x85\u202e\u2028",
            ["\\u0085", "\\u202e", "\\u2028"],
        ),  # would turn the text round
        ("\n\u0301", ["⏎", "\u0301"]),
        ("", []),
    ],
)
def test_each_glyph_can_be_printed(text: str, shown: list[str]) -> None:
    assert [glyph.shown for glyph in split_glyphs(text.encode())] == shown


def test_a_byte_that_is_not_utf8_stands_alone() -> None:
    glyphs = list(split_glyphs(b"a\xff\xc3b"))
    assert [(glyph.shown, glyph.start, glyph.num_bytes) for glyph in glyphs] == [
        ("a", 0, 1),
        ("\\xff", 1, 1),
        ("\\xc3", 2, 1),
        ("b", 3, 1),
    ]


def test_blanks_are_marked() -> None:
    assert mark_blanks("a b\t\n\x1b[0m") == "a·b⇥⏎␛[0m"
