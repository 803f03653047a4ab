"""Resources in a source tree. tests/test_distribution.py uses an installed wheel."""

from pathlib import Path

import pytest

from inference.serving.triton_installation import IMPORT_ROOT
from midtoken.errors import MissingResourceError
from midtoken.resources import check_page, find_default_model, find_model_repository


def test_a_source_tree_uses_the_folders_at_its_root() -> None:
    assert find_model_repository() == IMPORT_ROOT / "model_repository"
    assert find_default_model() == IMPORT_ROOT / "models" / "default"


def test_a_page_that_was_not_built_is_an_error_that_says_how(tmp_path: Path) -> None:
    with pytest.raises(MissingResourceError, match=r"has no page: .* `make playground` builds it"):
        check_page(tmp_path)
