"""What `midtoken surprisal` prints and draws."""

import math
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from midtoken.cli import main
from midtoken.commands.surprisal import format_lines
from midtoken.display.heat import build_legend, find_rgb, paint_line
from midtoken.display.reading import Reading
from midtoken.display.surprisal_plot import draw_surprisals

_TEXT = "é = 1\r\n\tx\n\nend".encode()


def _read(text: bytes = _TEXT, bits: float = 1.0) -> Reading:
    return Reading("app.py", text, (bits,) * len(text))


def test_a_line_has_its_bits_per_byte_its_number_and_itself() -> None:
    reading = Reading("app.py", b"ab\nc", (1.0, 2.0, 3.0, 0.5))
    assert list(format_lines(reading)) == ["2.000\t1\tab", "0.500\t2\tc"]


def test_every_line_is_there_without_its_end() -> None:
    assert [row.split("\t", 2)[2] for row in format_lines(_read())] == ["é = 1", "\tx", "", "end"]


def test_a_character_has_the_bits_of_all_its_bytes() -> None:
    (line,) = _read("é日".encode()).split_lines()
    assert line.bits == (2.0, 3.0)


def test_what_costs_nothing_has_no_colour() -> None:
    (line,) = _read(b"abc\n", bits=0.1).split_lines()
    text = paint_line(line)
    assert (text.plain, {str(span.style) for span in text.spans}) == ("abc", set())


def test_a_surprising_end_of_line_is_seen() -> None:
    (line,) = _read(b"a\r\n", bits=4.0).split_lines()
    assert paint_line(line).plain == "a⏎"


def test_a_tab_reaches_to_its_stop_behind_wide_characters() -> None:
    (line,) = _read("日本\tx".encode()).split_lines()
    plain = paint_line(line).plain
    assert (cell_len(plain), plain[-1]) == (9, "x")


def test_more_bits_are_a_darker_colour() -> None:
    colours = [find_rgb(bits) for bits in (0.5, 1.0, 3.0, 9.0, 16.0)]
    assert all(colours)
    assert colours == sorted(colours, key=lambda rgb: -sum(rgb or ()))
    assert find_rgb(math.inf) == find_rgb(16.0)


def test_black_on_each_colour_can_be_read() -> None:
    for bits in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
        red, green, blue = ((part / 255) ** 2.2 for part in find_rgb(bits) or ())
        luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        assert (luminance + 0.05) / 0.05 >= 4.5  # WCAG 2.2, contrast (minimum)


def test_the_legend_names_its_steps() -> None:
    assert build_legend().plain.split()[-6:] == ["0.5", "1", "2", "4", "8", "16+"]


@pytest.mark.parametrize("text", [_TEXT, b"$x^2$\x00\xff\n" * 100], ids=["characters", "lines"])
@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_a_picture_is_drawn(tmp_path: Path, text: bytes, ending: str) -> None:
    path = tmp_path / f"picture{ending}"
    draw_surprisals(_read(text, bits=math.inf), path)
    assert path.read_bytes()[:5] in (b"<?xml", b"\x89PNG\r")


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
    assert _run(capsys, str(path)) == f"midtoken: {path} is empty; surprisal is about its bytes"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--plot", "a.gif"), "a picture ends in .svg, .png or .pdf, not 'a.gif'"),
        (("--plot", "nowhere/a.svg"), "there is no folder nowhere"),
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


def test_without_matplotlib_a_plot_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as where it is not installed
    monkeypatch.delitem(sys.modules, "midtoken.display.surprisal_plot", raising=False)
    path = tmp_path / "app.py"
    path.write_text("x")
    message = _run(capsys, str(path), "--plot", str(tmp_path / "a.svg"))
    assert message.startswith("midtoken: --plot needs matplotlib, which the extra `plot` brings: ")
