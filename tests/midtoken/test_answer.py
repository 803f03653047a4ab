import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.protocol.characters import END
from inference.protocol.completion import CompletionRequest, ExplainedNode
from midtoken.answer import compute_shares, mark_blanks, rank_bytes, read_answer, split_graphemes
from tests.support.lsp_fakes import FedBackend, clear


async def test_the_texts_of_all_chunks_are_joined() -> None:
    backend = FedBackend()
    task = asyncio.create_task(read_answer(backend.stream(clear(CompletionRequest("return Nod")))))
    await asyncio.sleep(0)
    backend.streams[0].feed("e")
    backend.streams[0].finish("()")
    answer = await task
    assert (answer.text, answer.last.is_last) == ("e()", True)


@pytest.mark.parametrize(
    ("masses", "shares"),
    [
        ([math.log(0.3), None, math.log(0.1)], [0.75, None, 0.25]),
        ([-2000.0, -2000.0], [0.5, 0.5]),  # too small for a float
        ([None, None], [None, None]),
        ([], []),
    ],
)
def test_shares_are_of_all_crossings_and_sum_to_one(masses: list[float | None], shares: list[float | None]) -> None:
    found = compute_shares([ExplainedNode(None, "", 0, mass, None, None) for mass in masses])
    assert list(found) == [share if share is None else pytest.approx(share) for share in shares]


@pytest.mark.parametrize(
    ("text", "byte", "shown", "note"),
    [
        (b"", END, "end of text", ""),
        (b"a", ord("\t"), "⇥", "0x09"),
        (b"a", ord("\n"), "⏎", "0x0a"),
        (b"a", 0x1B, "␛", "0x1b"),
        (b"\xe6\x97", 0xA5, "日", "0xa5, the last of 3 bytes"),
        ("日".encode(), 0xC3, "\\xc3", "0xc3, byte 1 of a character"),
        (b"a\xc3", 0xA9, "é", "0xa9, the last of 2 bytes"),
        (b"\xe6", 0x97, "\\x97", "0x97, byte 2 of a character"),
        (b"\xff", 0x97, "\\x97", "0x97, byte 1 of a character"),
    ],
)
def test_the_likely_bytes_have_readable_names(text: bytes, byte: int, shown: str, note: str) -> None:
    probabilities = [0.0] * (END + 1)
    probabilities[byte], probabilities[ord("x")] = 0.7, 0.3
    first, second = rank_bytes(probabilities, text, 5)
    assert (first.shown, first.note, first.share) == (shown, note, 0.7)
    assert second.share == 0.3
    assert rank_bytes(probabilities, text, 1) == [first]


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
