"""The output of `midtoken surprisal`."""

from pathlib import Path

import pytest

from midtoken.cli import main
from midtoken.commands.surprisal import format_line
from midtoken.scored_text import score_lines


def test_a_row_has_bits_per_byte_line_number_and_line_without_its_line_end() -> None:
    text = "ab\né = 1\r\n\tx\n\nc".encode()
    lines = score_lines(text, (1.0, 2.0, 3.0, *[1.0] * 12, 0.5))
    shown = ["2.000\t1\tab", "1.000\t2\té = 1", "1.000\t3\t\tx", "1.000\t4\t", "0.500\t5\tc"]
    assert [format_line(number, line) for number, line in enumerate(lines, 1)] == shown


def test_an_empty_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.touch()
    assert main(["surprisal", str(path)]) == 1
    assert capsys.readouterr().err == f"midtoken: {path} is empty; there is no surprisal to show\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--width", "0"), "width must be between 1 and 1024, not 0"),
        (("--threshold", "2"), "threshold must be between 0 and 1, not 2.0"),
    ],
)
def test_an_invalid_request_is_refused_before_a_server_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "app.py"
    path.write_text("x")
    assert main(["surprisal", str(path), "--covering", "beam", *arguments, "--server", "127.0.0.1:9"]) == 1
    assert message in capsys.readouterr().err
