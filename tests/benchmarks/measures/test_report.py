"""Reports that are written part by part."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.measures.report import Figures, Target, run_parts


def test_a_part_that_fails_or_is_not_named_keeps_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "parts.json"
    path.write_text(json.dumps({"figures": {"one": 1, "two": 1, "three": 1}}))
    parts: dict[str, Callable[[], Figures]] = {
        "one": lambda: {"one": 1 / 0},
        "two": lambda: {"two": 2},
        "three": lambda: {"three": 3},
    }
    monkeypatch.setattr(sys, "argv", ["parts", "--output", str(tmp_path), "--only", "one", "two"])

    with pytest.raises(SystemExit) as ended:
        run_parts("parts", parts, [Target("two", "a bar", at_most=1), Target("three", "a bar", at_least=1)])

    report = json.loads(path.read_text())
    assert (bool(ended.value.code), report["figures"]) == (True, {"one": 1, "two": 2, "three": 1})
    assert [row["met"] for row in report["rows"]] == ["no", "yes"]
