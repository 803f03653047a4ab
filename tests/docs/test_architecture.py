"""docs/architecture.md names files, modules and classes. Each of them must exist."""

import importlib
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "architecture.md").read_text()
_QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", _PAGE)))
_PACKAGES = ("trie_cache", "inference", "lsp_server", "midtoken")
_FOLDERS = (*_PACKAGES, "model_repository", "editors", "models", "benchmarks", "tests", "docs")
_PATHS = [text for text in _QUOTED if "/" in text and text.partition("/")[0] in _FOLDERS]
_MODULES = [text for text in _QUOTED if re.fullmatch(rf"({'|'.join(_PACKAGES)})(\.[a-z_]+)+", text)]
_CLASSES = [text for text in _QUOTED if re.fullmatch(r"[A-Z][a-z]+[A-Za-z]*(\._?[a-z_]+)?", text)]
_SOURCES = [path for package in _PACKAGES for path in (_ROOT / package).rglob("*.py")]
_NOT_OURS = {"Position", "Makefile"}


@pytest.mark.parametrize("path", _PATHS)
def test_a_path_on_the_page_exists(path: str) -> None:
    assert (_ROOT / path).exists()


@pytest.mark.parametrize("name", _MODULES)
def test_a_module_on_the_page_exists(name: str) -> None:
    importlib.import_module(name)


@pytest.mark.parametrize("name", [name for name in _CLASSES if name not in _NOT_OURS])
def test_a_class_on_the_page_exists(name: str) -> None:
    class_name, _, method = name.partition(".")
    found = [path.read_text() for path in _SOURCES if f"class {class_name}" in path.read_text()]
    assert found
    assert not method or any(f"def {method}(" in text for text in found)


def test_every_package_is_on_the_page() -> None:
    packages = {path.parent.relative_to(_ROOT) for path in _SOURCES if path.name == "__init__.py"} - {Path("inference")}
    assert {
        package for package in packages if f"`{package}/`" not in _PAGE and f"`{package.name}/`" not in _PAGE
    } == set()


def test_the_modules_and_names_in_docstrings_and_comments_exist() -> None:
    pattern = rf"`((?:{'|'.join(_PACKAGES)})(?:\.\w+)+)`"
    named = {name for path in _SOURCES for name in re.findall(pattern, path.read_text())}
    missing = set()
    for name in named - {"midtoken.json"}:
        module, _, attribute = name.rpartition(".")
        if not any((_ROOT / name.replace(".", "/")).with_suffix(suffix).exists() for suffix in ("", ".py")):
            path = (_ROOT / module.replace(".", "/")).with_suffix(".py")
            if not path.exists() or not re.search(rf"\b{attribute}\b", path.read_text()):
                missing.add(name)
    assert named
    assert missing == set()
