"""Resources in a source tree. tests/test_distribution.py uses an installed wheel."""

from inference.serving.import_root import IMPORT_ROOT
from midtoken.resources import find_default_model, find_model_repository


def test_a_source_tree_uses_the_folders_at_its_root() -> None:
    assert find_model_repository() == IMPORT_ROOT / "model_repository"
    assert find_default_model() == IMPORT_ROOT / "models" / "default"
