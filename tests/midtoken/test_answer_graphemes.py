import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtoken.answer import mark_blanks, split_graphemes


def _show(text: str) -> list[str]:
    return [grapheme.shown for grapheme in split_graphemes(text.encode())]


@given(st.binary() | st.text().map(lambda text: text.encode(errors="ignore")))
def test_the_graphemes_are_the_text_in_order(data: bytes) -> None:
    graphemes = list(split_graphemes(data))
    parts = [data[grapheme.start : grapheme.start + grapheme.num_bytes] for grapheme in graphemes]
    assert b"".join(parts) == data
    assert "".join(grapheme.chars for grapheme in graphemes) == data.decode(errors="surrogateescape")


@pytest.mark.parametrize(
    "cluster",
    [
        "e\u0301",  # a letter and a combining accent
        "Z\u0351\u036b\u0343",  # and several
        "क्षि",  # a Devanagari syllable of four code points
        "กำ",
        "한",
        "\u1112\u1161\u11ab",  # the same Hangul syllable as three letters
        "🇩🇪",
        "👍🏽",
        "👩\u200d💻",
        "👨\u200d👩\u200d👧\u200d👦",
        "🏳\ufe0f\u200d🌈",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",  # the flag of England, spelled in tags
        "1\ufe0f\u20e3",  # a keycap
    ],
)
def test_a_character_as_drawn_is_one_grapheme(cluster: str) -> None:
    assert _show(f"a{cluster}b{cluster}{cluster}") == ["a", cluster, "b", cluster, cluster]


def test_adjacent_flags_are_separate_graphemes() -> None:
    assert _show("🇩🇪🇫🇷🇮🇹") == ["🇩🇪", "🇫🇷", "🇮🇹"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\n", ["a", "⏎", "b", "⏎"]),
        ("\r\r\n", ["␍", "⏎"]),
        ("\ta", ["\t", "a"]),
        ("\x00\x1b\x7f", ["␀", "␛", "␡"]),
        ("\x85\u202e\u2028", ["\\u0085", "\\u202e", "\\u2028"]),  # U+202E reverses the text after it
        ("\n\u0301", ["⏎", "\u0301"]),
        ("\u202e\u0301", ["\\u202e", "\u0301"]),
        ("\u200da", ["\\u200d", "a"]),  # a joiner that joins nothing
        ("", []),
    ],
)
def test_control_characters_are_shown_as_symbols_or_escapes(text: str, shown: list[str]) -> None:
    assert _show(text) == shown


def test_a_byte_that_is_not_utf8_is_its_own_grapheme() -> None:
    graphemes = list(split_graphemes(b"a\xff\xc3b"))
    assert [(grapheme.shown, grapheme.start, grapheme.num_bytes) for grapheme in graphemes] == [
        ("a", 0, 1),
        ("\\xff", 1, 1),
        ("\\xc3", 2, 1),
        ("b", 3, 1),
    ]


def test_no_character_joins_a_byte_that_is_not_utf8() -> None:
    data = "\u0600".encode() + b"\xff" + "\u0301\u200d".encode()  # the first joins forwards, the others backwards
    assert [grapheme.num_bytes for grapheme in split_graphemes(data)] == [2, 1, 5]


@given(st.text())
def test_no_control_character_is_shown_raw(text: str) -> None:
    shown = "".join(_show(text.encode(errors="ignore").decode()))
    assert not {char for char in shown if ord(char) < 0x20 and char != "\t"}
    assert not set(shown) & {"\x7f", "\u202a", "\u202e", "\u2066", "\u2028"}


def test_blanks_are_marked() -> None:
    assert mark_blanks("a b\t\r\n\x1b[0m") == "a·b⇥␍⏎␛[0m"


def test_a_marked_blank_keeps_its_accent() -> None:
    assert mark_blanks(" \u0301") == "·\u0301"
