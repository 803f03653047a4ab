import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from inference.serving.installation import IMPORT_ROOT, find_model_repository

_NAMES = ("trie_cache", "inference", "lsp_server", "midtoken")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("source")
    for name in (*_NAMES, "model_repository"):
        shutil.copytree(IMPORT_ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(IMPORT_ROOT / "pyproject.toml", folder)
    (folder / "README.md").touch()
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "-w", folder / "dist", folder], check=True)
    (path,) = (folder / "dist").glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.mark.parametrize("name", _NAMES)
def test_one_distribution_owns_every_name(wheel: zipfile.ZipFile, name: str) -> None:
    assert f"{name}/__init__.py" in wheel.namelist()


def test_the_wheel_carries_every_module(wheel: zipfile.ZipFile) -> None:
    modules = {str(path.relative_to(IMPORT_ROOT)) for name in _NAMES for path in (IMPORT_ROOT / name).rglob("*.py")}
    assert modules <= set(wheel.namelist())


def test_the_wheel_carries_the_model_repository(wheel: zipfile.ZipFile) -> None:
    files = [path.relative_to(find_model_repository()) for path in find_model_repository().rglob("*.*")]
    carried = [name.partition("share/midtoken/model_repository/")[2] for name in wheel.namelist()]
    assert {str(Path(file)) for file in files if "__pycache__" not in file.parts and file.suffix} <= set(carried)
