"""The output of `midtoken surprisal`."""

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
