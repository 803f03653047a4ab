"""What `midtoken surprisal` prints."""

from pathlib import Path

import pytest

from midtoken.cli import main
from midtoken.commands.surprisal import format_lines
from midtoken.display.scored_text import ScoredText

_TEXT = "é = 1\r\n\tx\n\nend".encode()


def _score(text: bytes = _TEXT) -> ScoredText:
    return ScoredText("app.py", text, (1.0,) * len(text))


def test_a_line_has_its_bits_per_byte_its_number_and_itself() -> None:
    scored = ScoredText("app.py", b"ab\nc", (1.0, 2.0, 3.0, 0.5))
    assert list(format_lines(scored)) == ["2.000\t1\tab", "0.500\t2\tc"]


def test_every_line_is_there_without_its_end() -> None:
    assert [row.split("\t", 2)[2] for row in format_lines(_score())] == ["é = 1", "\tx", "", "end"]


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it says of bad arguments; no server is needed for that."""
    try:
        status = main(["surprisal", *arguments, "--server", "127.0.0.1:9"])
    except SystemExit as error:
        status = int(str(error.code))
    assert status != 0
    return capsys.readouterr().err.splitlines()[-1]


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
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
def test_a_wrong_argument_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "app.py"
    path.write_text("x")
    assert message in _run(capsys, str(path), *arguments)
