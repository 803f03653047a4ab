"""Models that people complete code with, with the config.json and the markers that their publishers wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from inference.engine.fill_in import list_fill_ins
from inference.model.onnx.conversion import find_folder_obstacle
from trie_cache.trie import Vocabulary

_FOLDERS = json.loads((Path(__file__).parents[2] / "support/published_folders.json").read_text(encoding="utf-8"))


def _find_name(published: dict[str, Any]) -> str:
    return str(published["name"])


@pytest.mark.parametrize("published", _FOLDERS, ids=_find_name)
def test_a_published_model_has_its_fill_in_and_runner(published: dict[str, Any], tmp_path: Path) -> None:
    names = {name: 1 + index for index, name in enumerate(published["markers"])}
    fill_ins, _ = list_fill_ins("auto", tmp_path, Vocabulary.from_tokens({0: b"a"}, names))
    assert [each.layout.value for each in fill_ins] == published["layouts"]
    (tmp_path / "config.json").write_text(json.dumps(published["config"]))
    (tmp_path / "model.safetensors").touch()
    assert (find_folder_obstacle(tmp_path) or "").startswith(published["obstacle"] or "")
    assert (find_folder_obstacle(tmp_path) is None) == (published["obstacle"] is None)
