import argparse
import sys
from pathlib import Path

import pytest

from inference.serving.triton_installation import IMPORT_ROOT
from midtoken.errors import MissingPackagesError, MissingResourceError
from midtoken.installed import (
    check_page,
    find_default_model,
    find_model_repository,
    require_playground_packages,
    require_plot_packages,
    require_server_packages,
)


def _uninstall(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


def _options(triton_binary: Path | None = None) -> argparse.Namespace:
    return argparse.Namespace(server=None, triton_binary=triton_binary)


def test_no_error_if_everything_is_installed() -> None:
    require_server_packages(_options())
    require_plot_packages()
    require_playground_packages()


def test_only_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _uninstall(monkeypatch, "onnxruntime", "pytriton")
    with pytest.raises(MissingPackagesError, match=r"cannot run here without onnxruntime, nvidia-pytriton: run "):
        require_server_packages(_options())


def test_with_another_tritonserver_the_bundled_one_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    _uninstall(monkeypatch, "pytriton")
    require_server_packages(_options(Path("/opt/tritonserver/bin/tritonserver")))


def test_a_picture_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    _uninstall(monkeypatch, "matplotlib")
    with pytest.raises(MissingPackagesError, match=r"--plot needs matplotlib: run .* 'midtoken\[plot\]'"):
        require_plot_packages()


def test_the_playground_needs_aiohttp(monkeypatch: pytest.MonkeyPatch) -> None:
    _uninstall(monkeypatch, "aiohttp")
    with pytest.raises(MissingPackagesError, match=r"the playground needs aiohttp: run .* 'midtoken\[playground\]'"):
        require_playground_packages()


def test_a_source_tree_uses_the_folders_at_its_root() -> None:
    assert find_model_repository() == IMPORT_ROOT / "model_repository"
    assert find_default_model() == IMPORT_ROOT / "models" / "default"


def test_a_page_that_was_not_built_is_an_error_that_says_how(tmp_path: Path) -> None:
    with pytest.raises(MissingResourceError, match=r"has no page: .* `make playground` builds it"):
        check_page(tmp_path)
