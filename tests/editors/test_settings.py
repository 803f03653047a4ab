"""The editors' manifests and pages describe the settings as the language server reads them."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lsp_server.settings import SECTION, Settings, read_settings

_EDITORS = Path(__file__).parents[2] / "editors"
_FOLDER = _EDITORS / "vscode"
_PROPERTIES: dict[str, Any] = json.loads((_FOLDER / "package.json").read_text())["contributes"]["configuration"][
    "properties"
]
# `languages` and `model` are of both. For `languages`, the default there is a list; `model` becomes an argument.
_OF_THE_EXTENSION = {"command", "languages", "model", "server"}
_DEFAULTS = {re.sub("_(.)", lambda match: match[1].upper(), field.name): field.default for field in fields(Settings)}
_DEFAULTS = {name: value for name, value in _DEFAULTS.items() if not name.endswith("Bytes")}  # the old names
_DEFAULTS["context"] = "auto"
_OF_THE_SERVER = {
    name: schema
    for key, schema in _PROPERTIES.items()
    if (name := key.removeprefix(f"{SECTION}.")) not in _OF_THE_EXTENSION
}


def _is_accepted(name: str, value: Any) -> bool:
    return not read_settings({name: value}, Settings()).problems


def test_each_setting_of_the_language_server_is_described() -> None:
    assert set(_OF_THE_SERVER) == set(_DEFAULTS) - _OF_THE_EXTENSION


@pytest.mark.parametrize("name", [name for name in _DEFAULTS if name != "model"])  # an option beside the settings
@pytest.mark.parametrize(
    ("page", "line"), [("README.md", r"    {} = (.*?),\s"), ("doc/midtoken.txt", r"    {} +(\S+)")]
)
def test_neovims_pages_have_each_setting_with_its_default(name: str, page: str, line: str) -> None:
    text = (_EDITORS / "neovim" / page).read_text()
    in_lua = {True: "true", None: "nil", (): "{}"}.get(default := _DEFAULTS[name])  # type: ignore[arg-type]
    expected = in_lua or (f"'{default}'" if isinstance(default, str) else str(default))
    found = re.search(line.format(name), text)
    assert found is not None
    assert found[1] == expected


@pytest.mark.parametrize("name", _OF_THE_SERVER)
def test_the_default_is_the_language_servers(name: str) -> None:
    read = read_settings({name: _OF_THE_SERVER[name]["default"]}, Settings())
    assert read.problems == ()
    assert read.settings == Settings()


@pytest.mark.parametrize("name", [name for name, schema in _OF_THE_SERVER.items() if "minimum" in schema])
def test_the_limits_are_the_language_servers(name: str) -> None:
    low, high = _OF_THE_SERVER[name]["minimum"], _OF_THE_SERVER[name]["maximum"]
    assert [_is_accepted(name, value) for value in (low - 1, low, high, high + 1)] == [False, True, True, False]


@pytest.mark.parametrize("name", [name for name, schema in _OF_THE_SERVER.items() if "enum" in schema])
def test_the_choices_are_the_language_servers(name: str) -> None:
    choices = _OF_THE_SERVER[name]["enum"]
    (problem,) = read_settings({name: "no such choice"}, Settings()).problems
    listed = problem.split("must be one of ")[1].split(", not ")[0]
    assert set(choices) == set(listed.split(", "))


@pytest.mark.parametrize("key", _PROPERTIES)
def test_each_setting_is_in_the_readme(key: str) -> None:
    assert f"`{key}`" in (_FOLDER / "README.md").read_text()


@pytest.mark.parametrize("name", ["command", "context", "model", "server"])
def test_what_runs_and_where_text_goes_cannot_be_set_by_a_workspace(name: str) -> None:
    assert _PROPERTIES[f"{SECTION}.{name}"]["scope"] == "machine"


def test_the_locked_packages_name_no_host() -> None:
    packages = json.loads((_FOLDER / "package-lock.json").read_text())["packages"]
    assert not [name for name, package in packages.items() if "resolved" in package]
