"""Real servers for tests: `midtoken serve` as a process on free ports, with scripted or real models."""

import contextlib
import ctypes
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # JSON

import pytest

from inference.client.local_host import HostPlace
from inference.config import EngineConfig
from inference.errors import LaunchError
from inference.hosting.triton import find_installation
from inference.platforms import ADDRESS, IMPORT_ROOT
from midtoken.installed import find_bundled_model, find_model_repository
from midtoken.models import find_cache_dir

TRITON, EMBEDDED = "--runtime=triton", "--runtime=embedded"  # arguments of `midtoken serve`
_PR_SET_PDEATHSIG = 1
_PORTS = range(10_240, 32_768)  # below those that Linux gives to sockets that ask for any

_SCRIPTED_COMPLETION = """
from inference.hosting.models import CompletionModel
from .fakes import ScriptedEngine


class TritonPythonModel(CompletionModel):
    def __init__(self):
        super().__init__(ScriptedEngine)
"""

_SCRIPTED_CHARACTERS = """
from inference.hosting.models import CharacterModel
from .character_fakes import ScriptedCharacterModel, build_scripted_service


def _load(config, watch):
    return build_scripted_service(ScriptedCharacterModel(config.model_dir / "characters.txt", watch)).answer


class TritonPythonModel(CharacterModel):
    def __init__(self):
        super().__init__(_load)
"""

_SLOW_COMPLETION = """
from inference.hosting.models import CompletionModel
from .slow_model import load_slow_engine


class TritonPythonModel(CompletionModel):
    def __init__(self):
        super().__init__(load_slow_engine)
"""


def _has_triton() -> bool:
    with contextlib.suppress(LaunchError):
        return bool(find_installation(None))
    return False


needs_triton = pytest.mark.skipif(not _has_triton(), reason="there is no Triton here")


@dataclass(frozen=True, slots=True)
class Served:
    """A model, and the model repository that serves it."""

    model_dir: Path
    repository: Path

    def change(self, **script: Any) -> None:
        """Writes the script of a slow model."""
        path = self.model_dir / "script.json"
        path.with_suffix(".new").write_text(json.dumps(script))
        path.with_suffix(".new").replace(path)

    def command(self, state_dir: Path, *arguments: str, name: str = "serve") -> list[str]:
        """The command line of `midtoken serve`, or of another command that may start it."""
        return [
            *(sys.executable, "-m", "midtoken", name, f"--state-dir={state_dir}"),
            *(f"--model={self.model_dir}", f"--model-repository={self.repository}", *arguments),
        ]

    def find_place(self, state_dir: Path) -> HostPlace:
        """Where the host of `command` listens, if it has no argument that changes the configuration."""
        return HostPlace.find(state_dir, EngineConfig(self.model_dir.resolve(), graph_dir=find_cache_dir()))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The ports of a server: of the HTTP application, and of gRPC."""

    http_port: int
    grpc_port: int

    @property
    def http_url(self) -> str:
        """The base URL of the HTTP application."""
        return f"http://{ADDRESS}:{self.http_port}"

    @property
    def grpc_url(self) -> str:
        """The `url` argument of Client."""
        return f"{ADDRESS}:{self.grpc_port}"


def pick_free_endpoint() -> Endpoint:
    """Returns ports that nothing listens on now."""
    return Endpoint(*pick_free_ports(2))


def pick_free_ports(number: int) -> list[int]:
    """Returns so many different ports that nothing listens on now, none of which a socket gets that asks for any."""
    ports = random.SystemRandom().sample(_PORTS, len(_PORTS))
    return list(itertools.islice(filter(_is_free, ports), number))


def _is_free(port: int) -> bool:
    try:
        socket.create_server((ADDRESS, port)).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running `midtoken serve` that answers requests; in front of Triton, another one answers HTTP."""

    process: "subprocess.Popen[str]"
    endpoint: Endpoint
    served: Served
    state_dir: Path
    runtime: str = TRITON

    @property
    def runtime_name(self) -> str:
        """Triton or embedded, for figures."""
        return self.runtime.removeprefix("--runtime=")

    @property
    def url(self) -> str:
        """The `url` argument of Client."""
        return self.endpoint.grpc_url

    @property
    def http_url(self) -> str:
        """The base URL of its HTTP application."""
        return self.endpoint.http_url

    @property
    def log(self) -> str:
        """What the server and its models have written so far."""
        return "".join(path.read_text(errors="replace") for path in self.state_dir.rglob("*.log"))

    @property
    def events(self) -> list[str]:
        """The events that the scripted engine has recorded so far."""
        path = self.served.model_dir / "events.txt"
        return path.read_text().splitlines() if path.exists() else []

    def find_processes(self) -> dict[int, str]:
        """Returns its command lines by process id: `midtoken serve` or tritonserver, and what it has started."""
        return find_processes(self.state_dir)

    def find_stubs(self) -> list[int]:
        """Returns the processes that run its models. They are started through links in its state folder."""
        return [pid for pid, command in self.find_processes().items() if command.startswith(str(self.state_dir))]

    def find_regions(self) -> list[Path]:
        """Returns the shared memory of its models' processes."""
        maps = [Path(f"/proc/{pid}/maps").read_text() for pid in self.find_stubs()]
        paths = {word for text in maps for word in text.split() if "triton_python_backend_shm" in word}
        return sorted(map(Path, paths))

    def read_metric(self, name: str, label: str = "") -> float:
        """Returns a metric, summed over its labels, or over those series that have one."""
        lines = [line for line in self.read_metrics().splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.split()[-1]) for line in lines if label in line)

    def read_metrics(self) -> str:
        with urllib.request.urlopen(f"{self.http_url}/metrics") as response:
            return str(response.read().decode())


def make_scripted(folder: Path) -> Served:
    """Writes a model repository with the real configurations and models, but scripted engines."""
    repository = folder / "repository"
    _script(repository / "completion", "fakes.py", _SCRIPTED_COMPLETION)
    _script(repository / "characters", "character_fakes.py", _SCRIPTED_CHARACTERS)
    model_dir = folder / "model"
    model_dir.mkdir()
    write_model_files(model_dir)
    return Served(model_dir, repository)


def make_slow(folder: Path, **script: Any) -> Served:
    """As `make_scripted`, but with the bundled model in the real engine, behind a script of `slow_model`."""
    repository = folder / "repository"
    _script(repository / "completion", "slow_model.py", _SLOW_COMPLETION)
    shutil.copytree(find_model_repository() / "characters", repository / "characters")
    shutil.copytree(find_bundled_model(), folder / "model")
    served = Served(folder / "model", repository)
    served.change(**script)
    return served


def write_model_files(folder: Path) -> None:
    """Makes the folder look like a model."""
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")


def _script(model_folder: Path, fakes: str, model: str) -> None:
    version_dir = model_folder / "1"
    shutil.copytree(find_model_repository() / model_folder.name, model_folder)
    (version_dir / "model.py").write_text(model)
    shutil.copy(IMPORT_ROOT / "tests" / "support" / fakes, version_dir)


def find_real() -> Served:
    """Returns the bundled model."""
    return Served(find_bundled_model(), find_model_repository())


@contextlib.contextmanager
def run_server(served: Served, state_dir: Path, *arguments: str, runtime: str = TRITON) -> Iterator[RunningServer]:
    """Runs a server with free ports inside the block, and stops it afterwards if it has not ended yet."""
    ports = pick_free_endpoint()
    state_dir.mkdir(exist_ok=True)
    http = [f"--port={ports.http_port}"]
    started = (runtime, f"--grpc-port={ports.grpc_port}", *(http if runtime == EMBEDDED else []), *arguments)
    process = _start(served.command(state_dir, *started), state_dir / "serve.log")
    server, front = RunningServer(process, ports, served, state_dir, runtime), None
    try:
        if runtime == TRITON:
            command = [sys.executable, "-m", "midtoken", "serve", f"--server={ports.grpc_url}", *http]
            front = _start(command, state_dir / "http.log")
        wait_until(lambda: is_ready(server) or process.poll() is not None)
        assert process.poll() is None, f"midtoken serve ended while starting: {server.log}"
        yield server
    except BaseException:
        print(server.log)  # which pytest shows, and whose file it removes
        raise
    finally:
        for each in filter(None, (front, process)):
            each.terminate()
            each.wait(60)


def is_ready(server: RunningServer) -> bool:
    """Whether its HTTP application says so."""
    try:
        with urllib.request.urlopen(f"{server.http_url}/ready", timeout=20) as response:
            return bool(response.status == 200)
    except OSError:  # an error status is one
        return False


def _start(command: list[str], log_path: Path) -> "subprocess.Popen[str]":
    with log_path.open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, text=True, preexec_fn=_end_with_parent)


def _end_with_parent() -> None:
    """Makes the kernel end the server with the tests, also if they are killed, as by Ctrl-C in pytest-xdist."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Returns once the condition holds; fails the test if it never does."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def find_processes(folder: Path) -> dict[int, str]:
    """Returns the command lines that contain the folder, by process id."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # a process can end at any time
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in command:
                found[int(process.name)] = command
    return found


def end_servers(state_dir: Path) -> None:
    """Ends the shared servers with this folder, which no editor uses any more."""
    for pid, command in find_processes(state_dir).items():
        if "midtoken serve" in command or "inference.hosting.host" in command:
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not find_processes(state_dir))
