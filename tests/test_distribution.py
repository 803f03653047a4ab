"""The content of the wheel, and an empty environment after its installation."""

import zipfile
from pathlib import Path

import pytest

from inference.platforms import IMPORT_ROOT
from midtoken.installed import find_bundled_model, find_model_repository
from tests.support.installations import PACKAGES, Installation, build_wheel, copy_sources

pytestmark = pytest.mark.e2e

_SERVER_PACKAGES = ("onnx", "onnxruntime", "safetensors", "tokenizers", "pytriton", "torch", "transformers")


def _list_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def _list_relative(folder: Path, pattern: str) -> set[str]:
    paths = (path for path in folder.rglob(pattern) if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)) for path in paths}


@pytest.mark.parametrize("name", PACKAGES)
def test_every_import_name_belongs_to_one_distribution(wheel: Path, name: str) -> None:
    assert f"{name}/__init__.py" in _list_files(wheel)


def test_the_wheel_contains_every_module_and_no_other_folder(wheel: Path) -> None:
    files = _list_files(wheel)
    modules = {f"{name}/{path}" for name in PACKAGES for path in _list_relative(IMPORT_ROOT / name, "*.py")}
    assert modules <= files
    folders = {file.partition("/")[0] for file in files}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == set(PACKAGES)


@pytest.mark.parametrize(
    ("name", "folder"), [("model_repository", find_model_repository()), ("default_model", find_bundled_model())]
)
def test_the_wheel_contains_all_files_of_each_resource(wheel: Path, name: str, folder: Path) -> None:
    start = f"midtoken/{name}/"
    carried = {file.removeprefix(start) for file in _list_files(wheel) if file.startswith(start)}
    wanted = _list_relative(folder, "*")
    assert wanted
    assert carried == wanted


def test_the_wheel_contains_the_page_of_the_playground_if_it_was_built(wheel: Path) -> None:
    start = "midtoken/playground_page/"
    carried = {file.removeprefix(start) for file in _list_files(wheel) if file.startswith(start)}
    assert carried == _list_relative(IMPORT_ROOT / "editors/playground/dist", "*")


def test_a_build_takes_nothing_from_an_earlier_one_and_leaves_nothing(tmp_path: Path) -> None:
    deleted = copy_sources(tmp_path) / "build/lib/midtoken/deleted.py"
    deleted.parent.mkdir(parents=True)
    deleted.touch()
    before = {*tmp_path.rglob("*")}
    wheel = build_wheel(tmp_path)
    assert "midtoken/deleted.py" not in _list_files(wheel)
    assert {*tmp_path.rglob("*")} - before == {wheel.parent, wheel}


def test_resources_are_found_in_an_installed_wheel(light_installation: Installation) -> None:
    script = "from midtoken.installed import *; print(find_model_repository(), find_bundled_model())"
    done = light_installation.run(light_installation.python, "-c", script)
    package = light_installation.site_packages / "midtoken"
    assert done.stdout.split() == [str(package / "model_repository"), str(package / "default_model")], done.stderr


@pytest.mark.parametrize("name", [*_SERVER_PACKAGES, "matplotlib", "tests", "benchmarks"])
def test_a_light_installation_has_no_packages_that_only_a_server_needs(
    light_installation: Installation, name: str
) -> None:
    done = light_installation.run(light_installation.python, "-c", f"import {name}")
    assert f"No module named '{name}'" in done.stderr


@pytest.mark.parametrize("subcommand", ["complete", "lsp", "playground", "serve", "characters"])
def test_each_subcommand_of_a_light_installation_prints_its_help(
    light_installation: Installation, subcommand: str
) -> None:
    done = light_installation.run(light_installation.midtoken, subcommand, "--help")
    assert done.stdout.startswith(f"usage: midtoken {subcommand}"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "other_way"),
    [
        (("complete", "app.py:1"), ", or name a running server with --server HOST:PORT"),
        (("serve",), ""),
    ],
)
def test_a_light_installation_says_which_packages_a_server_needs(
    light_installation: Installation, wheel: Path, arguments: tuple[str, ...], other_way: str
) -> None:
    (light_installation.folder / "app.py").write_text("x")
    done = light_installation.run(light_installation.midtoken, *arguments)
    assert done.returncode == 1
    assert done.stderr == (
        "midtoken: a completion server cannot run here without aiohttp, onnx, onnxruntime, safetensors, tokenizers, "
        "prometheus-client: "
        f"run {light_installation.python} -m pip install '{wheel}[local]'{other_way}\n"
    )


def test_a_light_installation_says_which_packages_the_playground_needs(
    light_installation: Installation, wheel: Path
) -> None:
    done = light_installation.run(light_installation.midtoken, "playground", "--server", "127.0.0.1:9")
    hint = f"run {light_installation.python} -m pip install '{wheel}[playground]'"
    assert (done.returncode, done.stderr) == (1, f"midtoken: the playground needs aiohttp: {hint}\n")
