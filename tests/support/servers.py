"""Real servers for tests: `midtoken serve` as a process on free ports, with scripted or real models."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # JSON

import pytest

from inference.config import EngineConfig
from inference.serving.loopback import ADDRESS
from inference.serving.shared_server import ServerEntry
from inference.serving.triton_installation import GRPC, IMPORT_ROOT, find_obstacle
from midtoken.installed import find_default_model, find_model_repository

TRITON, EMBEDDED = "--runtime=triton", "--runtime=embedded"  # arguments of `midtoken serve`
needs_triton = pytest.mark.skipif(find_obstacle(None) is not None, reason="there is no Triton here")
_PR_SET_PDEATHSIG = 1

_SCRIPTED_COMPLETION = """
from .adapter import TritonPythonModel as Adapter
from .fakes import ScriptedEngine


class TritonPythonModel(Adapter):
    def __init__(self):
        super().__init__(ScriptedEngine)
"""

_SCRIPTED_CHARACTERS = """
from .adapter import TritonPythonModel as Adapter
from .character_fakes import ScriptedCharacterModel, build_scripted_service


def _load(config, watch):
    return build_scripted_service(ScriptedCharacterModel(config.model_dir / "characters.txt", watch)).answer


class TritonPythonModel(Adapter):
    def __init__(self):
        super().__init__(_load)
"""

_SLOW_COMPLETION = """
from .adapter import TritonPythonModel as Adapter
from .slow_model import load_slow_engine


class TritonPythonModel(Adapter):
    def __init__(self):
        super().__init__(load_slow_engine)
"""


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

    def entry(self, state_dir: Path, runtime: str = TRITON) -> ServerEntry:
        """The entry with which `command` registers, if it has this argument."""
        return ServerEntry.create(state_dir, EngineConfig(self.model_dir.resolve()), runtime == EMBEDDED)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The ports of a server; one without Triton has only the last."""

    http_port: int
    grpc_port: int
    metrics_port: int

    @property
    def arguments(self) -> list[str]:
        """With which `midtoken serve` listens on them."""
        ports = {"http": self.http_port, "grpc": self.grpc_port, "metrics": self.metrics_port}
        return [f"--{service}-port={port}" for service, port in ports.items()]

    @property
    def http_url(self) -> str:
        """The base URL of the HTTP API."""
        return f"http://{ADDRESS}:{self.http_port}"

    @property
    def grpc_url(self) -> str:
        """The `url` argument of Client."""
        return f"{ADDRESS}:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """The URL that Prometheus scrapes."""
        return f"{self.operator_url}/metrics"

    @property
    def operator_url(self) -> str:
        """The base URL of the operator's port."""
        return f"http://{ADDRESS}:{self.metrics_port}"


def pick_free_endpoint() -> Endpoint:
    """Returns three different ports that nothing listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((ADDRESS, 0))) for _ in range(3)]
        return Endpoint(*(each.getsockname()[1] for each in sockets))


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running `midtoken serve` that answers requests."""

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
        if self.runtime == TRITON:
            return self.endpoint.grpc_url
        entry = self.served.entry(self.state_dir, self.runtime)
        return f"unix:{self.state_dir / entry.folder.name}/{self.process.pid}-{GRPC}"

    @property
    def front_url(self) -> str:
        """The address of its port for editors, if it was started with `--openai`."""
        return self.log.partition(" find it at ")[2].split()[0]

    @property
    def public_url(self) -> str:
        """The address of its port for midtoken's clients elsewhere, if it was started with `--listen`."""
        return self.log.partition(" reach it with --server ")[2].split()[0].removeprefix("grpcs://")

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
        """Returns its command lines by process id: `midtoken serve`, process guard, tritonserver and stubs."""
        return find_processes(self.state_dir)

    def find_stubs(self) -> list[int]:
        """Returns the processes that run its models. They are started through links in its state folder."""
        return [pid for pid, command in self.find_processes().items() if command.startswith(str(self.state_dir))]

    def find_regions(self) -> list[Path]:
        """Returns its shared memory. The number after the namespace is the process id of its process guard."""
        regions = Path("/dev/shm").glob("triton_python_backend_shm_region_midtoken_*")
        owners = {str(pid) for pid in self.find_processes()}
        return [path for path in regions if path.name.split("_")[7] in owners]

    def read_metric(self, name: str, label: str = "") -> float:
        """Returns a metric, summed over its labels, or over those series that have one."""
        with urllib.request.urlopen(self.endpoint.metrics_url) as response:
            lines = response.read().decode().splitlines()
        return sum(
            float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")) and label in line
        )


def make_scripted(folder: Path) -> Served:
    """Writes a model repository with the real configurations and adapters, but scripted models."""
    repository = folder / "repository"
    _script(repository / "completion", "fakes.py", _SCRIPTED_COMPLETION)
    _script(repository / "characters", "character_fakes.py", _SCRIPTED_CHARACTERS)
    model_dir = folder / "model"
    model_dir.mkdir()
    write_model_files(model_dir)
    return Served(model_dir, repository)


def make_slow(folder: Path, **script: Any) -> Served:
    """As `make_scripted`, but with the default model in the real engine, behind a script of `slow_model`."""
    repository = folder / "repository"
    _script(repository / "completion", "slow_model.py", _SLOW_COMPLETION)
    shutil.copytree(find_model_repository() / "characters", repository / "characters")
    shutil.copytree(find_default_model(), folder / "model")
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
    (version_dir / "model.py").rename(version_dir / "adapter.py")
    (version_dir / "model.py").write_text(model)
    shutil.copy(IMPORT_ROOT / "tests" / "support" / fakes, version_dir)


def find_real() -> Served:
    """Returns the default model."""
    return Served(find_default_model(), find_model_repository())


@contextlib.contextmanager
def run_server(served: Served, state_dir: Path, *arguments: str, runtime: str = TRITON) -> Iterator[RunningServer]:
    """Runs a server inside the block, Triton with free ports, and stops it afterwards if it has not ended yet."""
    endpoint = pick_free_endpoint()
    ports = [] if "--no-ports" in arguments else endpoint.arguments[0 if runtime == TRITON else 2 :]
    command = served.command(state_dir, runtime, *ports, *arguments)
    state_dir.mkdir(exist_ok=True)
    with (state_dir / "serve.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True, preexec_fn=_end_with_parent)
    server = RunningServer(process, endpoint, served, state_dir, runtime)
    try:
        entry = served.entry(state_dir, runtime)
        wait_until(lambda: entry.find() is not None or process.poll() is not None)
        assert entry.find() is not None, f"midtoken serve ended while starting: {server.log}"
        yield server
    except BaseException:
        print(server.log)  # which pytest shows, and whose file it removes
        raise
    finally:
        process.terminate()
        process.wait(60)


def _end_with_parent() -> None:
    """Makes the kernel end the server with the tests, also if they are killed, as by Ctrl-C in pytest-xdist."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Returns once the condition holds; fails the test if it never does."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def find_ports(pids: Iterable[int]) -> set[int]:
    """Returns the TCP ports on which the processes listen."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/fd").glob("*")]
    held = {os.readlink(file) for file in files}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in held}


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
        if "midtoken serve" in command:
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not find_processes(state_dir))
