"""The output of `midtoken surprisal`."""

import math
from pathlib import Path

import pytest

from midtoken.cli import main
from midtoken.commands.surprisal import find_style, paint


def test_an_empty_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.touch()
    assert main(["surprisal", str(path)]) == 1
    assert capsys.readouterr().err == f"midtoken: {path} is empty; there is no surprisal to show\n"


def test_the_bits_of_a_character_are_the_sum_over_its_bytes() -> None:
    painted = paint("xé日".encode(), (0.1, 0.5, 0.5, 0.7, 0.7, 0.6))
    spans = [(painted.plain[span.start : span.end], span.style) for span in painted.spans]
    assert spans == [("é", find_style(1.0)), ("日", find_style(2.0))]


@pytest.mark.parametrize(
    ("text", "bits", "shown", "has_colour"),
    [
        (b"abc\n", 0.1, "abc\n", False),
        (b"a\tb\n", 4.0, "a\tb⏎\n", True),
        (b"\x1b\xff\n", 0.1, "␛\\xff\n", False),
    ],
)
def test_surprising_characters_have_a_colour_and_line_ends_only_then_a_mark(
    text: bytes, bits: float, shown: str, has_colour: bool
) -> None:
    painted = paint(text, (bits,) * len(text))
    assert (painted.plain, any(span.style for span in painted.spans)) == (shown, has_colour)


_STEPS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def _read_colour(bits: float) -> list[int]:
    return list(bytes.fromhex(find_style(bits).removeprefix("#000000 on #")))


def test_more_bits_have_a_darker_colour() -> None:
    brightness = [sum(_read_colour(bits)) for bits in _STEPS]
    assert brightness == sorted(set(brightness), reverse=True)
    assert find_style(math.nextafter(0.5, 0)) == ""
    assert find_style(math.inf) == find_style(16.0)
