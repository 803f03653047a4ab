"""The output of `midtoken next-byte`."""

import io

from rich.console import Console

from inference.protocol.characters import END, CoveringMember, NextByte
from midtoken.commands.next_byte import render


def _render(text: bytes, shares: dict[int, float], *members: CoveringMember) -> list[str]:
    probabilities = tuple(shares.get(byte, 0.0) for byte in range(257))
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(text, NextByte(probabilities, members)))
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


def test_the_likeliest_byte_comes_first() -> None:
    rows = _render(b"Hello, worl", {ord("k"): 0.1, ord("d"): 0.9})
    assert rows[0] == "after Hello,·worl"
    assert [row.replace("━", "").split() for row in rows[3:5]] == [
        ["90.00", "%", "d"],
        ["10.00", "%", "k"],
    ]


def test_a_small_probability_is_not_shown_as_zero() -> None:
    assert _render(b"a", {ord("d"): 0.00002})[3] == "<0.01 % d"


def test_a_tokenization_is_shown_with_its_tokens_and_the_bytes_ahead() -> None:
    rows = _render(
        b"Hello, worl",
        {ord("d"): 1.0},
        CoveringMember(("Hello", ",", " world"), "d", 0.75),
        CoveringMember(("Hello", ",", " wor", "l"), "", 0.25),
    )
    assert [row.replace("━", "").split(" %")[1].strip() for row in rows[6:8]] == [
        "Hello|,|·world",
        "Hello|,|·wor|l then any token",
    ]


def test_an_empty_text_is_shown_as_nothing() -> None:
    assert _render(b"", {97: 1.0})[0] == "after nothing"


def test_only_the_end_of_a_long_text_is_shown() -> None:
    assert _render(b"x" * 100 + b"y", {97: 1.0})[0] == "after …" + "x" * 59 + "y"


def test_bytes_that_are_no_character_have_names_and_impossible_ones_are_not_shown() -> None:
    rows = _render(b"a", {END: 0.4, 0xC3: 0.3, ord("\t"): 0.2, 0x1B: 0.1})
    assert [row.split()[-1] for row in rows[3:]] == ["text", "\\xc3", "⇥", "␛"]
