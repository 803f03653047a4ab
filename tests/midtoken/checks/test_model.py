import json
from pathlib import Path

from midtoken.checks.check import Mark
from midtoken.checks.model import check_model_folder
from midtoken.resources import find_default_model


def test_the_default_model_is_complete() -> None:
    assert check_model_folder(find_default_model()).mark is Mark.GOOD


def test_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check = check_model_folder(tmp_path)
    assert (check.mark, check.what) == (Mark.WRONG, f"model {tmp_path}: tokenizer.json, *.safetensors missing")


def test_every_part_of_the_weights_is_needed(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "a.safetensors"):
        (tmp_path / name).write_text("{}")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert check_model_folder(tmp_path).what == f"model {tmp_path}: b.safetensors missing"
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    assert check_model_folder(tmp_path).what == f"model {tmp_path}: a readable model.safetensors.index.json missing"
