"""The files and the command of deploy/Dockerfile, with the bundled tritonserver in the place of the container's.

The packages are links to those of this environment, and only those that the file installs; nothing is downloaded.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.protocol.completion import CompletionRequest
from inference.serving import process_guard
from inference.serving.client import Client
from inference.serving.triton_installation import build_environment, link_bundled_installation
from tests.support.dockerfile import HOME, copy_files, read_command, read_environment
from tests.support.installations import install_wheel
from tests.support.servers import Endpoint, find_processes, pick_free_endpoint, wait_until

pytestmark = pytest.mark.e2e


@dataclass(frozen=True, slots=True)
class _Container:
    """A running server that has the container's files."""

    home: Path
    endpoint: Endpoint
    log: Path

    def check_health(self) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-I", "-S", str(self.home / "health_check.py"), self.endpoint.http_url]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)


@pytest.fixture(scope="module")
def container(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Container]:
    folder = tmp_path_factory.mktemp("container")
    home, log, endpoint = folder / "home", folder / "server.log", pick_free_endpoint()
    copy_files(home)
    install_wheel(wheel, home / "venv", ["local"])
    installation = link_bundled_installation(folder / "links")
    environment = build_environment(installation, EngineConfig(Path()), {"PATH": os.environ["PATH"]})
    environment = {name: value for name, value in environment.items() if not name.startswith("MIDTOKEN_")}
    set_in_image = {name: value.replace(HOME, str(home)) for name, value in read_environment().items()}
    environment |= {name: value.replace("$PATH", os.environ["PATH"]) for name, value in set_in_image.items()}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", process_guard.__file__, "1", "none-", str(installation.binary),
             *_build_arguments(home, endpoint), f"--backend-directory={installation.backends_dir}",
             f"--cache-directory={installation.cache_dir}"],
            stdin=subprocess.PIPE, stdout=file, stderr=file, env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip
    try:
        running = _Container(home, endpoint, log)
        _wait_until_ready(running, process)
        yield running
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def _build_arguments(home: Path, endpoint: Endpoint) -> list[str]:
    """The container's own, on loopback and on free ports."""
    ports = dict(each.split("=") for each in endpoint.arguments)
    replaced = []
    for argument in read_command()[1:]:
        name = argument.partition("=")[0]
        argument = f"{name}={ports[name]}" if name in ports else argument.replace(HOME, str(home))
        replaced.append(argument.replace("0.0.0.0", "127.0.0.1"))
    return replaced


def _wait_until_ready(container: _Container, process: "subprocess.Popen[bytes]") -> None:
    wait_until(lambda: container.check_health().returncode == 0 or process.poll() is not None)
    assert process.poll() is None, container.log.read_text(errors="replace")[-3000:]


async def test_a_completion_comes_from_the_files_of_the_container(container: _Container) -> None:
    client = Client(container.endpoint.grpc_url)
    request = CompletionRequest("import os\n\npath = os.path.joi", max_tokens=4)
    text = "".join([chunk.text async for chunk in client.stream(request)])
    await client.close()

    assert text.startswith("n(")
    imported = re.findall(r"inference is (\S+)", container.log.read_text(errors="replace"))
    assert imported
    assert all(Path(path).is_relative_to(container.home.parent) for path in imported)


def test_the_health_check_fails_when_the_process_of_a_model_has_ended(container: _Container) -> None:
    assert container.check_health().returncode == 0

    os.kill(_find_stub(container), signal.SIGKILL)

    assert container.check_health().returncode != 0


def _find_stub(container: _Container) -> int:
    """The process that runs the completion model of this server."""
    commands = find_processes(container.home / "model_repository" / "completion")
    (stub,) = (pid for pid, command in commands.items() if "stub" in command.partition(" ")[0])
    return stub
