"""The output of `midtoken next-byte`."""

from inference.protocol.characters import END, CoveringMember, NextByte
from midtoken.commands.next_byte import render


def _render(shares: dict[int, float], *members: CoveringMember) -> list[str]:
    return [*render(NextByte(tuple(shares.get(byte, 0.0) for byte in range(257)), members))]


def test_the_likeliest_byte_comes_first_and_a_small_probability_is_not_shown_as_zero() -> None:
    rows = _render({ord("k"): 0.1, ord("x"): 0.00002, ord("d"): 0.9})
    assert [row.split() for row in rows[1:]] == [["90.00", "%", "d"], ["10.00", "%", "k"], ["<0.01", "%", "x"]]


def test_a_tokenization_is_shown_with_its_tokens_and_the_bytes_ahead() -> None:
    rows = _render(
        {ord("d"): 1.0},
        CoveringMember(("Hello", ",", " world"), "d", 0.75),
        CoveringMember(("Hello", ",", " wor", "l"), "", 0.2),
        CoveringMember((), "", 0.05),
    )
    shown = [row.split(" %  ")[1] for row in rows[3:]]
    assert shown == ["Hello|,|·worl▏d", "Hello|,|·wor|l▏and any token", "▏and any token"]


def test_bytes_that_are_no_character_have_names_and_impossible_ones_are_not_shown() -> None:
    rows = _render({END: 0.4, 0xC3: 0.3, ord("\t"): 0.2, 0x1B: 0.1})
    assert [row.split()[-1] for row in rows[1:]] == ["text", "\\xc3", "⇥", "␛"]
