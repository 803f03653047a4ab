"""The container's file says nothing that the repository does not know. No container is built here.

That what it copies is there, and that tritonserver starts with it, is tested in tests/e2e/test_deploy.py.
"""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from inference.config import EngineConfig, config_to_environment
from inference.serving.triton_installation import (
    IMPORT_ROOT,
    build_command,
    link_bundled_installation,
)
from tests.support.dockerfile import (
    HOME,
    find_values,
    is_ignored,
    read_command,
    read_environment,
    read_instructions,
)
from tests.support.servers import needs_triton

_PROJECT = tomllib.loads((IMPORT_ROOT / "pyproject.toml").read_text())["project"]
# Where the server listens and what it finds there; in a container this differs from a server that midtoken starts.
_PLACE_ARGUMENTS = re.compile(
    r"--(model-repository|backend-directory|cache-directory|\w+-address|\w+-port|allow-gpu-metrics"
    r"|exit-timeout-secs)(=|$)"
)


@pytest.mark.parametrize(
    "path",
    [".git/HEAD", ".venv/bin/python", "build/x", "tests/conftest.py", "models/training/train.py", "deploy/Dockerfile",
     "inference/engine/__pycache__/engine.cpython-311.pyc", "editors/playground/dist/index.html"],
)  # fmt: skip
def test_nothing_else_gets_into_the_build(path: str) -> None:
    assert is_ignored(path)


def test_the_extras_that_are_installed_exist() -> None:
    [extras] = [value.partition("=")[2].split(",") for value in find_values("ARG") if value.startswith("EXTRAS=")]

    assert set(extras) <= _PROJECT["optional-dependencies"].keys()
    assert '"./source[${EXTRAS}]"' in find_values("RUN")[0]


def test_the_container_gets_no_second_tritonserver() -> None:
    wanted = map(Requirement, _PROJECT["optional-dependencies"]["local"])
    image = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.12"}
    names = {each.name for each in wanted if each.marker is None or each.marker.evaluate(image)}

    assert names == {
        "aiohttp",
        "httpx2",
        "huggingface_hub",
        "ml-dtypes",
        "onnx",
        "onnxruntime",
        "psutil",
        "safetensors",
        "tokenizers",
    }


def test_packages_are_installed_where_the_server_looks_for_them() -> None:
    [environment] = re.findall(r"-m venv --without-pip (\S+)", find_values("RUN")[0])

    assert find_values("WORKDIR") == [HOME]
    assert f"--python {environment}/bin/python install" in find_values("RUN")[0]
    assert read_environment()["PATH"] == f"{HOME}/{environment}/bin:$PATH"


def test_each_setting_is_one_of_the_engine() -> None:
    known = config_to_environment(EngineConfig(Path("model")))
    settings = {name for name in read_environment() if name.startswith("MIDTOKEN_")}

    assert settings
    assert settings <= known.keys()


def test_nothing_is_installed_or_run_as_root_after_the_user_is_set() -> None:
    names = [each.name for each in read_instructions()]

    assert find_values("USER") == ["triton-server"]
    assert {"RUN", "COPY"}.isdisjoint(names[names.index("USER") :])


@needs_triton
def test_the_server_gets_the_arguments_of_a_server_that_midtoken_starts(tmp_path: Path) -> None:
    installation = link_bundled_installation(tmp_path)
    started = build_command(installation, tmp_path, "", drain_s=1)[1:]

    assert {each for each in started if not _PLACE_ARGUMENTS.match(each)} == {
        each for each in read_command()[1:] if not _PLACE_ARGUMENTS.match(each)
    }


def test_the_page_builds_and_runs_the_file_with_two_commands() -> None:
    page = (IMPORT_ROOT / "deploy" / "README.md").read_text()
    build, run = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0].splitlines()

    assert build == "docker build -f deploy/Dockerfile -t midtoken ."
    published = re.findall(r"-p (\S+):(\d+):(\d+)", run)
    assert published == [("127.0.0.1", "8001", "8001")]
    assert "--grpc-port=8001" in read_command()
