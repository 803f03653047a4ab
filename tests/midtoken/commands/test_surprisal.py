"""The output of `midtoken surprisal`."""

from pathlib import Path

import pytest

from midtoken.cli import main
from midtoken.commands.surprisal import format_lines
from midtoken.scored_text import ScoredText

_TEXT = "é = 1\r\n\tx\n\nend".encode()


def _score(text: bytes = _TEXT) -> ScoredText:
    return ScoredText("app.py", text, (1.0,) * len(text))


def test_a_row_has_bits_per_byte_line_number_and_line() -> None:
    scored = ScoredText("app.py", b"ab\nc", (1.0, 2.0, 3.0, 0.5))
    assert list(format_lines(scored)) == ["2.000\t1\tab", "0.500\t2\tc"]


def test_every_line_is_printed_without_its_line_end() -> None:
    assert [row.split("\t", 2)[2] for row in format_lines(_score())] == ["é = 1", "\tx", "", "end"]


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns the error for bad arguments. No server is needed."""
    try:
        status = main(["surprisal", *arguments, "--server", "127.0.0.1:9"])
    except SystemExit as error:
        status = int(str(error.code))
    assert status != 0
    return capsys.readouterr().err.splitlines()[-1]


def test_a_missing_file_is_named_in_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "nowhere.py") == "midtoken: cannot read nowhere.py: No such file or directory"


def test_an_empty_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.touch()
    assert _run(capsys, str(path)) == f"midtoken: {path} is empty; there is no surprisal to show"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--plot", "a.gif"), "must end in .svg, .png or .pdf, not 'a.gif'"),
        (("--plot", "nowhere/a.svg"), "the folder nowhere does not exist"),
        (("--covering", "all"), "invalid choice: 'all'"),
        (("--covering", "beam", "--width", "0"), "width must be between 1 and 1024, not 0"),
        (("--covering", "beam", "--threshold", "2"), "threshold must be between 0 and 1, not 2.0"),
    ],
)
def test_a_wrong_argument_is_named_in_the_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "app.py"
    path.write_text("x")
    assert message in _run(capsys, str(path), *arguments)
