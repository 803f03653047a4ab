"""Starts tritonserver on loopback, waits until a real completion comes back, and ends it without a trace."""

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from inference.config import EngineConfig, config_to_environment
from inference.errors import LaunchError, ServerError, ServerUnreachableError
from inference.serving import process_guard
from inference.serving.character_client import CharacterClient
from inference.serving.completion_client import CompletionClient
from inference.serving.import_root import IMPORT_ROOT, is_checkout
from inference.serving.triton_installation import TritonInstallation, find_installation, link_bundled_installation

ADDRESS = "127.0.0.1"
Progress = Callable[[str], None]  # one line for a person

_DRAIN_S = 10  # an idle server takes 3 s to end
_PROBE_TIMEOUT_S = 30.0  # a tiny completion, possibly behind others on a slow machine
_BUSY_TIMEOUT_S = 3.0  # a model that answers one request after the other may be; Triton sees in 1 s that one is dead
_NUM_LOG_LINES = 15

# What no completion needs is closed to other programs on this machine, web pages that post to loopback included.
_CLOSED_APIS = "shared-memory,model-repository,model-config,trace,logging,statistics"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens on loopback."""

    http_port: int
    grpc_port: int
    metrics_port: int

    @property
    def ports(self) -> tuple[int, int, int]:
        """All of them."""
        return self.http_port, self.grpc_port, self.metrics_port

    @property
    def grpc_url(self) -> str:
        """As CompletionClient takes it."""
        return f"{ADDRESS}:{self.grpc_port}"

    @property
    def http_url(self) -> str:
        """The base of the HTTP API."""
        return f"http://{ADDRESS}:{self.http_port}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus scrapes."""
        return f"http://{ADDRESS}:{self.metrics_port}/metrics"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What to serve, from where, with which program."""

    model: EngineConfig
    model_repository: Path
    state_dir: Path  # of this server: its log, and links to the bundled backend
    triton_binary: Path | None = None  # None: the one that the nvidia-pytriton wheel carries
    endpoint: Endpoint | None = None  # None: any free ports
    start_timeout_s: float = 600.0  # large models load slowly

    @property
    def log_path(self) -> Path:
        """What tritonserver and the model say; the run before stands in `.1`."""
        return self.state_dir / "tritonserver.log"


class TritonServer:
    """A tritonserver that answers. It ends with this process, however that ends."""

    def __init__(self, process: asyncio.subprocess.Process, endpoint: Endpoint, log_path: Path) -> None:
        """Use `start`."""
        self.endpoint = endpoint
        self._process = process
        self._log_path = log_path

    @classmethod
    async def start(cls, options: ServerOptions, environment: Mapping[str, str], on_progress: Progress) -> Self:
        """Returns once a completion has come back. Raises LaunchError with the end of the server's log."""
        endpoint = options.endpoint or _find_free_endpoint()
        _check_ports(endpoint)
        on_progress(f"starting tritonserver, log in {options.log_path}")
        server = cls(await _spawn(options, endpoint, environment), endpoint, options.log_path)
        try:
            async with asyncio.timeout(options.start_timeout_s):
                await server._wait_until_it_answers(options.model.model_dir, on_progress)
        except TimeoutError:
            await server.stop(may_drain=False)
            raise server._error(f"tritonserver did not answer within {options.start_timeout_s:g} s") from None
        except BaseException:  # cancelled too: nothing may stay behind
            await server.stop(may_drain=False)
            raise
        return server

    async def probe(self) -> None:
        """A tiny completion, and a sign of life of the other model. Raises ServerError where one does not come."""
        if self._process.returncode is not None:
            raise ServerUnreachableError(f"tritonserver has ended; its log is {self._log_path}")
        for client in (
            CompletionClient(self.endpoint.grpc_url, idle_timeout_s=_PROBE_TIMEOUT_S),
            CharacterClient(self.endpoint.grpc_url, timeout_s=_BUSY_TIMEOUT_S),
        ):
            try:
                await client.probe()
            finally:
                await client.close()

    async def wait_until_ended(self) -> None:
        """Returns when the server's process is gone."""
        await self._process.wait()

    async def stop(self, may_drain: bool = True) -> None:
        """Lets running streams finish, ten seconds at most, and ends the server and all that belongs to it."""
        pipe = self._process.stdin
        assert pipe is not None, "the guardian is started with a pipe"
        if not may_drain:
            with contextlib.suppress(ConnectionError):
                pipe.write(b"k")
                await pipe.drain()
        pipe.close()
        await asyncio.shield(self._process.wait())

    async def _wait_until_it_answers(self, model_dir: Path, on_progress: Progress) -> None:
        on_progress(f"loading the model {model_dir}")
        for port in self.endpoint.ports:  # they open when the model is loaded, one after the other
            while not await _is_listening(port):
                if self._process.returncode is not None:
                    raise self._error("tritonserver could not start")
                await asyncio.sleep(0.05)
        try:
            await self.probe()
        except ServerError as error:
            raise self._error(f"tritonserver started, but a first completion failed: {error}") from error
        on_progress("a first completion has come back")

    def _error(self, what: str) -> LaunchError:
        lines = self._log_path.read_text(errors="replace").replace("\0", "").splitlines()
        causes = [line for line in lines if line.startswith("E") or "rror" in line]
        tail = "\n".join(line[:1000] for line in (causes or lines)[-_NUM_LOG_LINES:])
        return LaunchError(f"{what}. The log is {self._log_path}; it says:\n{tail}")


async def _spawn(
    options: ServerOptions, endpoint: Endpoint, environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    options.state_dir.mkdir(parents=True, exist_ok=True)
    installation = (
        find_installation(options.triton_binary)
        if options.triton_binary
        else link_bundled_installation(options.state_dir / "backends")
    )
    if options.log_path.exists():
        options.log_path.replace(options.log_path.with_suffix(".log.1"))
    with options.log_path.open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", process_guard.__file__, str(_DRAIN_S)),
            *_build_command(installation, options.model_repository, endpoint),
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=_build_environment(installation, options.model, environment),
            cwd=IMPORT_ROOT if is_checkout() else options.state_dir,  # the stub imports from its working folder
            start_new_session=True,  # Ctrl-C is ours to handle
        )


def _build_command(installation: TritonInstallation, model_repository: Path, endpoint: Endpoint) -> list[str]:
    secret = secrets.token_hex(16)
    cache = [f"--cache-directory={installation.cache_dir}"] if installation.cache_dir else []
    return [
        str(installation.binary),
        f"--model-repository={model_repository}",
        f"--backend-directory={installation.backends_dir}",
        *cache,
        *(f"--{service}-address={ADDRESS}" for service in ("http", "grpc", "metrics")),
        f"--http-port={endpoint.http_port}",
        f"--grpc-port={endpoint.grpc_port}",
        f"--metrics-port={endpoint.metrics_port}",
        f"--http-restricted-api={_CLOSED_APIS}:midtoken-key={secret}",
        f"--grpc-restricted-protocol={_CLOSED_APIS}:midtoken-key={secret}",
        "--model-control-mode=none",
        "--disable-auto-complete-config",
        "--allow-sagemaker=false",
        "--allow-vertex-ai=false",
        "--allow-gpu-metrics=false",
        "--pinned-memory-pool-byte-size=0",
        f"--exit-timeout-secs={_DRAIN_S}",
    ]


def _build_environment(
    installation: TritonInstallation, model: EngineConfig, environment: Mapping[str, str]
) -> dict[str, str]:
    def prepend(name: str, *folders: Path) -> dict[str, str]:
        return {name: os.pathsep.join([*map(str, folders), *filter(None, [environment.get(name)])])}

    interpreter_dir = Path(sys.executable).parent  # from here the stub finds the virtual environment
    return {
        **environment,
        **config_to_environment(model),
        **prepend("PATH", interpreter_dir),
        **prepend("LD_LIBRARY_PATH", *installation.shared_library_dirs),
        **(prepend("PYTHONPATH", IMPORT_ROOT) if is_checkout() else {}),
    }


def _find_free_endpoint() -> Endpoint:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]  # all open at once, so that they differ
        for each in sockets:
            each.bind((ADDRESS, 0))
        return Endpoint(*(each.getsockname()[1] for each in sockets))


def _check_ports(endpoint: Endpoint) -> None:
    for port in endpoint.ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((ADDRESS, port))
            except OSError as error:
                raise LaunchError(f"port {port} on {ADDRESS} cannot be used: {error.strerror}") from None


async def _is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(ADDRESS, port)
    except OSError:
        return False
    writer.close()
    return True
