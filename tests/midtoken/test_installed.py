import sys
from pathlib import Path

import pytest

from inference.errors import LaunchError
from inference.platforms import IMPORT_ROOT
from midtoken.installed import find_bundled_model, find_model_repository, find_playground_page, require_packages


def test_only_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(LaunchError, match=r"^this needs onnxruntime: run .* or that$"):
        require_packages("local", "this needs", other_way=" or that")


def test_a_source_tree_uses_the_folders_at_its_root() -> None:
    assert find_model_repository() == IMPORT_ROOT / "model_repository"
    assert find_bundled_model() == IMPORT_ROOT / "models" / "default"


def test_a_page_that_was_not_built_is_an_error_that_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midtoken.installed.files", lambda _: tmp_path)
    with pytest.raises(LaunchError, match=r"has no page: .* `make playground` builds it"):
        find_playground_page()
