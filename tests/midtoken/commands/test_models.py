"""The models that `midtoken models` recommends, and the one that it makes the default."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.measures.report import read_rows
from midtoken.cli import main
from midtoken.commands.models import RECOMMENDED
from midtoken.installed import find_bundled_model
from midtoken.models import HubModel, choose_default, find_default_name, may_offer


def test_the_recommended_models_are_of_families_that_are_right() -> None:
    right = {row.get("family", row.get("name")) for row in read_rows("models") if row["outcome"] == "right"}
    assert {each.family for each in RECOMMENDED} <= right


def test_a_model_is_made_the_default_until_the_bundled_one_is_chosen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert may_offer()
    folder = shutil.copytree(find_bundled_model(), tmp_path / "my model")
    monkeypatch.chdir(tmp_path)
    assert main(["models", "use", "./my model"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert find_default_name() == str(folder)
    assert not may_offer()
    assert main(["models"]) == 0
    assert f"\n  {folder}, the default\n" in capsys.readouterr().out
    shutil.rmtree(folder)  # then the bundled model takes its place
    assert find_default_name() is None
    assert main(["models", "use", "bundled"]) == 0
    assert find_default_name() is None
    assert not may_offer()
    capsys.readouterr()
    assert main(["models"]) == 0
    assert "the bundled model, for Python" in capsys.readouterr().out


def test_a_file_with_no_name_of_a_model_means_the_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    choose_default("bundled")
    for name in ("x" * 5000, "a\0b", "~nobody/x"):
        (tmp_path / "midtoken/models/default").write_text(name)
        assert find_default_name() is None


def test_a_model_that_is_not_there_does_not_become_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert main(["models", "use", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err
    folder = shutil.copytree(find_bundled_model(), tmp_path / "other")
    (folder / "config.json").write_text('{"model_type": "other"}')
    assert main(["models", "use", str(folder)]) == 1
    assert "other" in capsys.readouterr().err
    assert may_offer()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "https://huggingface.co/owner/name/tree/main",
            "owner/name                                0.00 GB, commit 0123456",
        ),
        ("ollama:go", "ollama:go:latest"),
    ],
)
def test_the_default_is_marked_whatever_it_was_called(
    name: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{'0' * 64}"}
    files = {"manifests/registry.ollama.ai/library/go/latest": json.dumps({"layers": [layer]})}
    for path, text in (files | {f"blobs/sha256-{'0' * 64}": ""}).items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    choose_default(name)
    place = tmp_path / "snapshots" / "0123456789"
    place.mkdir(parents=True)
    HubModel("owner/name").pin.write_text(str(place))
    assert main(["models"]) == 0
    marked = [line.strip() for line in capsys.readouterr().out.splitlines() if line.endswith(", the default")]
    assert marked == [f"{shown}, the default"]
