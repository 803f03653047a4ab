"""The container's file says nothing that the repository does not know. No container is built here."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from inference.platforms import IMPORT_ROOT
from midtoken.cli import main

_PROJECT = tomllib.loads((IMPORT_ROOT / "pyproject.toml").read_text())["project"]
_JOINED = re.sub(r"\\\n\s*", "", (IMPORT_ROOT / "deploy/Dockerfile").read_text())
_INSTRUCTIONS = re.findall(r"^([A-Z]+) (.*)$", _JOINED, re.MULTILINE)


def _find_values(name: str) -> list[str]:
    """The values of all instructions of this name."""
    return [value for instruction, value in _INSTRUCTIONS if instruction == name]


def _read_command() -> list[str]:
    command: list[str] = json.loads(_find_values("ENTRYPOINT")[0])
    return command


def test_what_is_copied_is_there_and_nothing_else_gets_into_the_build() -> None:
    sources = {source for value in _find_values("COPY") for source in value.split()[:-1]}
    assert [source for source in sources if not (IMPORT_ROOT / source).exists()] == []
    first, *others = (line for line in (IMPORT_ROOT / ".dockerignore").read_text().splitlines() if line[0] != "#")
    assert (first, set(others)) == ("*", {f"!{source}" for source in sources} | {"**/__pycache__"})


def test_nothing_is_installed_or_run_as_root_after_the_user_is_set() -> None:
    names = [name for name, _ in _INSTRUCTIONS]
    assert _find_values("USER") == ["triton-server"]
    assert {"RUN", "COPY"}.isdisjoint(names[names.index("USER") :])


def test_the_command_is_one_of_midtoken_which_runs_the_images_tritonserver(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *arguments = _read_command()
    assert program in _PROJECT["scripts"]
    assert main([*arguments, f"--state-dir={tmp_path}"]) == 1
    assert capsys.readouterr().err == "midtoken: /opt/tritonserver/bin/tritonserver is not an executable file\n"


def test_the_container_is_healthy_while_the_server_of_its_command_is_ready() -> None:
    [check] = _find_values("HEALTHCHECK")
    [port] = (each.partition("=")[2] for each in _read_command() if each.startswith("--port="))
    assert f"'http://127.0.0.1:{port}/v2/health/ready'" in check
