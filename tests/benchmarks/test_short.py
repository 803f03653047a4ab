"""The short forms of all benchmarks."""

import sys
from pathlib import Path

import pytest

from benchmarks import short

_BENCHMARKS = [path for path in Path(short.__file__).parent.glob("*.py") if path.stem not in ("__init__", "short")]


@pytest.mark.parametrize("path", _BENCHMARKS, ids=lambda path: path.stem)
def test_every_benchmark_has_a_short_form(path: Path) -> None:
    source = path.read_text()
    assert "run_parts(" in source or '"--short"' in source


def test_a_benchmark_that_fails_is_named_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(short, "SHORT_DIR", tmp_path)
    monkeypatch.setattr(sys, "argv", ["short", "no_such", "__init__"])
    with pytest.raises(SystemExit, match=r"failed: no_such$"):
        short.main()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["no_such", "__init__"]
    assert "No module named" in (tmp_path / "no_such.log").read_text()
