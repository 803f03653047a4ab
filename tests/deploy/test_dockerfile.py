"""The container's file says nothing that the repository does not know. No container is built here."""

import json
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from inference.config import EngineConfig, config_to_environment
from inference.serving.triton_installation import IMPORT_ROOT, build_command, link_bundled_installation
from tests.support.servers import needs_triton

_PROJECT = tomllib.loads((IMPORT_ROOT / "pyproject.toml").read_text())["project"]
_HOME = "/opt/midtoken"
_JOINED = re.sub(r"\\\n\s*", "", (IMPORT_ROOT / "deploy/Dockerfile").read_text())
_INSTRUCTIONS = re.findall(r"^([A-Z]+) (.*)$", _JOINED, re.MULTILINE)
# Where the server listens and what it finds there; in a container this differs from a server that midtoken starts.
_PLACE_ARGUMENTS = re.compile(
    r"--(model-repository|backend-directory|cache-directory|\w+-address|\w+-port|allow-gpu-metrics"
    r"|exit-timeout-secs)(=|$)"
)


def _find_values(name: str) -> list[str]:
    """The values of all instructions of this name."""
    return [value for instruction, value in _INSTRUCTIONS if instruction == name]


def _read_environment() -> dict[str, str]:
    return dict(value.split("=", 1) for value in _find_values("ENV"))


def _read_command() -> list[str]:
    command: list[str] = json.loads(_find_values("CMD")[0])
    return command


def test_what_is_copied_is_there_and_nothing_else_gets_into_the_build() -> None:
    sources = {source for value in _find_values("COPY") for source in value.split()[:-1]}
    assert [source for source in sources if not (IMPORT_ROOT / source).exists()] == []
    first, *others = (line for line in (IMPORT_ROOT / ".dockerignore").read_text().splitlines() if line[0] != "#")
    assert (first, set(others)) == ("*", {f"!{source}" for source in sources} | {"**/__pycache__"})


def test_the_extras_that_are_installed_exist() -> None:
    [extras] = [value.partition("=")[2].split(",") for value in _find_values("ARG") if value.startswith("EXTRAS=")]
    assert set(extras) <= _PROJECT["optional-dependencies"].keys()
    assert '"./source[${EXTRAS}]"' in _find_values("RUN")[0]


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
    [environment] = re.findall(r"-m venv --without-pip (\S+)", _find_values("RUN")[0])
    assert _find_values("WORKDIR") == [_HOME]
    assert f"--python {environment}/bin/python install" in _find_values("RUN")[0]
    assert _read_environment()["PATH"] == f"{_HOME}/{environment}/bin:$PATH"


def test_each_setting_is_one_of_the_engine() -> None:
    settings = {name for name in _read_environment() if name.startswith("MIDTOKEN_")}
    assert set() < settings <= config_to_environment(EngineConfig(Path("model"))).keys()


def test_nothing_is_installed_or_run_as_root_after_the_user_is_set() -> None:
    names = [name for name, _ in _INSTRUCTIONS]
    assert _find_values("USER") == ["triton-server"]
    assert {"RUN", "COPY"}.isdisjoint(names[names.index("USER") :])


@needs_triton
def test_the_server_gets_the_arguments_of_a_server_that_midtoken_starts(tmp_path: Path) -> None:
    started = build_command(link_bundled_installation(tmp_path), tmp_path, "", drain_s=1)
    ours, others = ({each for each in command[1:] if not _PLACE_ARGUMENTS.match(each)} for command in (
        _read_command(), started
    ))  # fmt: skip
    assert ours == others


def test_the_page_builds_and_runs_the_file_with_two_commands() -> None:
    page = (IMPORT_ROOT / "deploy" / "README.md").read_text()
    build, run = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0].splitlines()
    assert build == "docker build -f deploy/Dockerfile -t midtoken ."
    assert re.findall(r"-p (\S+):(\d+):(\d+)", run) == [("127.0.0.1", "8001", "8001")]
    assert "--grpc-port=8001" in _read_command()
