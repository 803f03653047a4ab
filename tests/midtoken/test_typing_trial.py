"""Typing is counted as the module's page says, and only files that may be sent are typed."""

import asyncio
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from midtoken.cli import main
from midtoken.typing_report import _read_texts, build_table, draw_plot
from midtoken.typing_trial import Cursors, Line, Trial, Typist, compute_calibration_error, draw_lines

_LINE = Line("", "return node", "\n")


class _Scripted:
    """Shows texts by the text before the cursor."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def open(self, _before: str, _after: str) -> None: ...

    async def show(self, before: str, _after: str) -> str:
        return self._texts.get(before, "")


def _type(texts: dict[str, str], takes_words: bool = False) -> Typist:
    typist = Typist(_Scripted(texts), takes_words)
    asyncio.run(typist.type(_LINE))
    return typist


def test_tab_takes_what_is_wholly_right_for_one_key() -> None:
    assert _type({"ret": "urn node"}).num_keys == 4


def test_tab_takes_nothing_that_is_wrong_somewhere() -> None:
    assert _type({"ret": "urn nodes"}).num_keys == len(_LINE.text)


@pytest.mark.parametrize(
    ("before", "shown", "num_keys"), [("ret", "urn nodes", 9), ("retu", "rn x", 11), ("r", "et", 10)]
)
def test_a_word_is_taken_if_it_is_right_and_has_three_characters(before: str, shown: str, num_keys: int) -> None:
    assert _type({before: shown}, takes_words=True).num_keys == num_keys


def test_wrong_characters_count_at_each_key() -> None:
    assert _type({"r": "ex", "re": "x", "ret": "urn nobody"}).num_wrong == 1 + 1 + 4


def test_a_flicker_is_a_change_at_a_key_that_agrees() -> None:
    assert _type({"r": "etu_", "re": "tu_", "ret": "rn"}).num_flickers == 1
    assert _type({"r": "eturx", "re": "turx+1"}).num_flickers == 1  # it has vanished
    assert _type({"r": "ex", "re": "go"}).num_flickers == 1


def test_calibration_error_is_weighted_by_the_claims_in_a_bin() -> None:
    claims = [(0.95, True)] * 3 + [(0.25, False)]
    assert compute_calibration_error(claims) == pytest.approx((3 * 0.05 + 0.25) / 4)
    assert compute_calibration_error([]) is None


def test_drawn_lines_are_different_lines_of_the_files() -> None:
    text = "".join(f"    some_name_{number} = {number}\n" for number in range(200))
    lines = draw_lines([text, "short"], 30, seed=1)
    assert len({line.before for line in lines}) == 30
    assert all(line.before + line.text + line.after == text for line in lines)
    assert lines == draw_lines([text, "short"], 30, seed=1)


def test_files_that_a_rule_excludes_are_not_typed(tmp_path: Path) -> None:
    for name in ("shown.py", "hidden.py"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".midtokenignore").write_text("hidden.py\n")
    assert _read_texts(tmp_path, "*.py") == ["shown.py"]


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["--files=/etc/*.py"], "has too few lines in files /etc/*.py"),
        (["--files=../*.py"], "has too few lines in files ../*.py"),
        (["--files=**a/*.py"], "has too few lines in files **a/*.py"),
        (["--plot=nowhere/plot.svg"], "cannot write nowhere/plot.svg of --plot: No such file"),
        (["--compare", "nowhere"], "nowhere does not exist"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_runs(
    arguments: list[str], refusal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inner").mkdir()
    for folder in (tmp_path, tmp_path / "inner"):
        (folder / "file.py").write_text("".join(f"some_name_{number} = {number}\n" for number in range(200)))
    state = tmp_path / "state"
    command = ["models", "try", "bundled", f"--on={tmp_path / 'inner'}", f"--state-dir={state}", *arguments]
    assert main(command) == 1
    assert refusal in capsys.readouterr().err
    assert not state.exists()


def test_the_number_of_lines_is_at_least_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["models", "try", "bundled", "--on=.", "--lines=-5"])
    assert "--lines: must be a number from 1" in capsys.readouterr().err


def test_the_plot_has_a_bar_for_each_trial_names_as_they_are_and_loads_nothing() -> None:
    typist = _type({"ret": "urn node"})
    trial = Trial("exact, 0.4", typist, typist, Cursors(typist.ghost))
    console = Console(width=300, file=io.StringIO(), record=True)
    console.print(build_table({"a<[b]": [trial]}))
    plot = draw_plot(console)
    assert "a&lt;[b]" in plot
    assert "━" * round(40 * typist.saved) in plot
    assert set(re.findall('https?://[^ "]*', plot)) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}
