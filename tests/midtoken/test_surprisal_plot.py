import math
from pathlib import Path

import pytest

from midtoken.errors import UsageError
from midtoken.scored_text import ScoredText
from midtoken.surprisal_plot import draw_surprisals


def _score(text: bytes, bits: float = 1.0) -> ScoredText:
    return ScoredText("app.py", text, (bits,) * len(text))


@pytest.mark.parametrize(
    "text", ["é = 1\r\n\tx\n\nend".encode(), b"$x^2$\x00\xff\n" * 100], ids=["characters", "lines"]
)
@pytest.mark.parametrize(("suffix", "magic"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_a_picture_has_the_format_of_its_suffix(tmp_path: Path, text: bytes, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"picture{suffix}"
    draw_surprisals(_score(text, bits=math.inf), path)
    assert path.read_bytes().startswith(magic)


@pytest.mark.parametrize(("num_chars", "label"), [(360, "bits"), (361, "bits for a byte")])
def test_a_long_text_has_a_bar_for_each_line(tmp_path: Path, num_chars: int, label: str) -> None:
    path = tmp_path / "picture.svg"
    draw_surprisals(_score(b"x" * num_chars), path)
    assert f"<!-- {label} -->" in path.read_text()


def test_a_picture_that_cannot_be_written_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "picture.svg"
    with pytest.raises(UsageError, match=f"cannot write {path}: No such file"):
        draw_surprisals(_score(b"x"), path)
