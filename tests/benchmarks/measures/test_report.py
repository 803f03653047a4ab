"""What a benchmark's file says of its parts."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.measures.report import (
    Part,
    Target,
    read_figures,
    read_parts,
    read_targets,
    run_parts,
)

_TARGETS = (Target("a", "the first", at_most=1), Target("b", "the second", at_least=1))


def _run(folder: Path, parts: Mapping[str, Part], *arguments: str) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["benchmark", f"--output={folder}", *arguments])
        with pytest.raises(SystemExit) as ended:
            run_parts("some", parts, _TARGETS)
    return ended.value.code


def _fail(_is_short: bool) -> dict[str, float]:
    raise ValueError("it fails")


def _age(folder: Path) -> None:
    """Makes the parts that the file has older than the commit that is measured."""
    path = folder / "some.json"
    content = json.loads(path.read_text())
    for part in content["parts"].values():
        part["commit"] = "old"
    path.write_text(json.dumps(content))


def test_a_part_that_fails_keeps_its_stamp_and_the_others_are_measured(tmp_path: Path) -> None:
    _run(tmp_path, {"one": lambda _: {"a": 1}, "two": lambda _: {"b": 2}})
    _age(tmp_path)
    assert _run(tmp_path, {"one": _fail, "two": lambda _: {"b": 3}}) == "some: failed: one"
    assert read_parts("some", tmp_path)["one"]["commit"] == "old"
    assert read_figures("some", tmp_path) == {"a": 1, "b": 3}


def test_the_file_says_which_targets_are_missed(tmp_path: Path) -> None:
    _run(tmp_path, {"one": lambda _: {"a": 1, "b": 0.5}})
    assert {each["figure"]: each["is_met"] for each in read_targets("some", tmp_path)} == {"a": True, "b": False}
