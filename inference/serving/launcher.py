"""Starts tritonserver, waits for a first completion, keeps the server running, and stops it.

After the stop, no process and no shared memory of the server remain; see process_guard.py.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
from asyncio import timeout
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self

from inference.config import EngineConfig
from inference.errors import LaunchError, ServerError, ServerUnreachableError
from inference.serving import process_guard
from inference.serving.calls import CHARACTERS, COMPLETION, SOCKET_SCHEME
from inference.serving.client import Client
from inference.serving.private_files import make_private_folder, open_folder, open_private
from inference.serving.triton_installation import (
    GRPC,
    SOCKETS,
    build_command,
    build_environment,
    prepare_installation,
    to_shell_path,
)

Progress = Callable[[str], None]  # takes one line for the user

MAX_STALL_S = 60.0  # after so long without progress a model has failed; one step takes seconds on a slow machine

DRAIN_S = 4  # for running streams. Those that have not ended by then are told so
_EXIT_S = 0.5  # for tritonserver to end then; it says that it does, and does not while a stream is open
END_S = 8  # for what comes after them: an idle server takes 3 s to end, and the guard a moment to kill what is left
_METRICS_S = 3.0  # for the answer

# How Triton logs an exception that is raised while a model is loaded: as a JSON string, followed by the calls.
_MODEL_ERROR = re.compile(r'"Failed to initialize Python stub: ModelError: ((?:[^"\\]|\\.)*)"')
_CALLS = "\n\nAt:\n"
_LOGGED = re.compile(r'[EFIW]\d{4} [\d:.]+ \d+ \S+\] ("(?:[^"\\]|\\.)*")')
_NOT_LOADED = "failed to load '"  # begins the line with the reason, before those that follow from it
_SHARED_MEMORY = re.compile("shared memory.*No space left")
_MAX_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The model, its folders, and how tritonserver is run."""

    model: EngineConfig
    model_repository: Path
    state_dir: Path  # this server's log and sockets, and links to the bundled backend
    triton_binary: Path | None = None  # None: the one in the nvidia-pytriton wheel
    start_timeout_s: float = 600.0  # large models load slowly
    max_stall_s: float = MAX_STALL_S
    owner: int = field(default_factory=os.getpid)  # the process that outlives the server, and starts it again

    @property
    def log_path(self) -> Path:
        """The output of tritonserver and the models. The previous run's log is beside it, as `.log.1`."""
        return self.state_dir / "tritonserver.log"

    @property
    def socket_prefix(self) -> str:
        """Begins the names of the server's sockets; that of another owner with the same folder has other ones."""
        return f"{self.owner}-"

    def find_socket(self, name: str) -> Path:
        """Returns where the server listens, for one of `SOCKETS`."""
        return self.state_dir / f"{self.socket_prefix}{name}"


class TritonServer:
    """A running tritonserver. It is stopped when this process ends, even if this process is killed."""

    def __init__(self, process: asyncio.subprocess.Process, options: ServerOptions) -> None:
        """Use `start`."""
        self.url = f"{SOCKET_SCHEME}{options.find_socket(GRPC)}"  # the `url` argument of Client
        self._process = process  # the process guard
        self._options = options
        self._model_ended, self._resources = asyncio.Event(), contextlib.ExitStack()

    @classmethod
    async def start(cls, options: ServerOptions, environment: Mapping[str, str], on_progress: Progress) -> Self:
        """Starts a server and waits for a first completion. Raises LaunchError with what the server's log says."""
        on_progress(f"starting tritonserver, log in {options.log_path}")
        server = cls(await _spawn(options, environment), options)
        try:
            async with timeout(options.start_timeout_s):
                await server._wait_until_it_answers(on_progress)
            server._watch_models()
        except TimeoutError:
            await server.stop(may_drain=False)
            raise server._error(f"tritonserver did not answer within {options.start_timeout_s:g} s") from None
        except BaseException:  # a cancelled start must not leave a process either
            await server.stop(may_drain=False)
            raise
        return server

    async def probe(self) -> None:
        """Raises ServerError if the server has ended, or a model has made no progress for `max_stall_s`."""
        if self._process.returncode is not None:
            raise ServerUnreachableError(f"tritonserver has ended; its log is {self._options.log_path}")
        await check_heartbeats(self.url, self._options.max_stall_s)

    async def wait_until_ended(self) -> None:
        """Returns when the server's process has ended, or that of a model, of which Triton says nothing."""
        ends = [asyncio.ensure_future(each) for each in (self._process.wait(), self._model_ended.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ends:
                each.cancel()

    def _watch_models(self) -> None:
        """Notes the end of any process of the server at once: Triton goes on without a model's, and never answers."""
        import psutil  # here, because an installation without `local` lacks it; it has no Triton either

        loop = asyncio.get_running_loop()
        with contextlib.suppress(psutil.Error, ProcessLookupError):  # the guard's, which tells of it
            for child in psutil.Process(self._process.pid).children(recursive=True):
                file = os.pidfd_open(child.pid)  # type: ignore[attr-defined,unused-ignore]  # not on macOS and Windows
                loop.add_reader(file, self._model_ended.set)
                self._resources.callback(os.close, file)
                self._resources.callback(loop.remove_reader, file)

    async def stop(self, may_drain: bool = True) -> None:
        """Stops the server and its child processes. With `may_drain`, running streams get four seconds to finish."""
        pipe = self._process.stdin
        assert pipe is not None, "the process guard is started with a pipe"
        self._resources.close()
        if not may_drain:
            with contextlib.suppress(ConnectionError):
                pipe.write(b"k")
                await pipe.drain()
        pipe.close()
        try:
            async with timeout(END_S + (DRAIN_S if may_drain else 0)):
                await asyncio.shield(self._process.wait())
        except TimeoutError:  # the guard hangs; when it is killed, the kernel ends the server
            self._process.kill()
            await asyncio.shield(self._process.wait())

    async def _wait_until_it_answers(self, on_progress: Progress) -> None:
        on_progress(f"loading the model {self._options.model.model_dir}")
        for name in SOCKETS:  # they open one after the other, once the model is loaded
            while not is_listening(self._options.find_socket(name)):
                if self._process.returncode is not None:
                    raise self._error("tritonserver could not start")
                await asyncio.sleep(0.05)
        try:
            await check_completion(self.url)
            await self.probe()
        except ServerError as error:
            raise self._error(f"tritonserver started, but does not work: {error}") from error
        on_progress("the first completion has arrived")

    def _error(self, what: str) -> LaunchError:
        path = self._options.log_path
        log = path.read_text(errors="replace").replace("\0", "")
        if refused := _MODEL_ERROR.search(log):
            return LaunchError(json.loads(f'"{refused[1]}"').partition(_CALLS)[0])
        lines = log.splitlines()
        if not lines:
            return LaunchError(f"{what}, and its log is empty, as on a full disk: {path}")
        if _SHARED_MEMORY.search(log):
            reason = "/dev/shm has too little room; if this is a container, start it with --shm-size=64m"
        else:
            reason = _find_reason([line for line in lines if line.startswith("E") or "rror" in line] or lines)
        return LaunchError(f"{what}: {reason}. Its log is {path}")


def _find_reason(lines: Sequence[str]) -> str:
    """What the lines of a log say of a failure, as a part of a sentence."""
    messages = [json.loads(each[1]) if (each := _LOGGED.fullmatch(line)) else line for line in lines]
    reason = next((each for each in messages if each.startswith(_NOT_LOADED)), messages[-1])
    return " ".join(reason.partition(_CALLS)[0].split())[:_MAX_REASON_CHARS]


async def _spawn(options: ServerOptions, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    make_private_folder(options.state_dir)
    try:
        installation = prepare_installation(options.triton_binary, options.state_dir / "backends")
        backends_dir = to_shell_path(installation.backends_dir, options.state_dir, "backends.link")
        installation = replace(installation, backends_dir=backends_dir)
        repository = to_shell_path(options.model_repository, options.state_dir, "repository.link")
        if options.log_path.exists():
            options.log_path.replace(options.log_path.with_suffix(".log.1"))
        with open_private(options.log_path, "wb") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", process_guard.__file__, str(DRAIN_S + _EXIT_S), options.socket_prefix),
                *build_command(installation, repository, options.socket_prefix, DRAIN_S),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=build_environment(installation, options.model, environment),
                cwd=options.state_dir,  # the stub imports from its working folder, and this one has nothing to import
                start_new_session=True,  # Ctrl-C in the terminal must not reach the server; `stop` ends it
            )
    except OSError as error:
        raise LaunchError(
            f"cannot start tritonserver with its files in {options.state_dir}: {error.strerror}"
        ) from None


async def check_completion(url: str) -> None:
    """Waits for a completion of one token. Raises ServerError."""
    async with Client(url) as client:
        await client.probe()


async def read_metrics(url: str) -> str:
    """Returns the completion model's metrics, in Prometheus's text format. Raises ServerError."""
    async with Client(url) as client:
        return await client.read_metrics(_METRICS_S)


async def check_heartbeats(url: str, max_stall_s: float, timeout_s: float | None = None) -> None:
    """Raises ServerError if a model of the server has made no progress for so long. One that is only busy passes.

    `timeout_s`: for the answer of each model; None: as long.
    """
    async with Client(url) as client:
        for model_name in (COMPLETION, CHARACTERS):
            stall_ms = await client.read_heartbeat_ms(model_name, timeout_s or max_stall_s)
            if stall_ms > max_stall_s * 1000:
                raise ServerError(f"the model {model_name} has made no progress for {stall_ms / 1000:.0f} s")


def is_listening(path: Path) -> bool:
    """Returns whether a server listens on the socket."""
    with (
        open_folder(path.parent) as folder,
        socket.socket(socket.AF_UNIX) as client,  # type: ignore[attr-defined,unused-ignore]  # not on Windows
    ):
        client.settimeout(1.0)  # of a process that hangs, the queue may be full
        return client.connect_ex(str(folder / path.name)) == 0


class Server(Protocol):
    """The server that is watched."""

    async def probe(self) -> None: ...  # raises ServerError if the server has failed
    async def wait_until_ended(self) -> None: ...
    async def stop(self, may_drain: bool = True) -> None: ...


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often to probe a server, and how often to try to restart it."""

    probe_interval_s: float = 5.0
    first_backoff_s: float = 1.0  # the wait after the first failed start; doubles each time
    max_failed_starts: int = 5


async def keep_running(
    server: Server, restart: Callable[[], Awaitable[Server]], on_failure: Callable[[str], None], policy: RestartPolicy
) -> None:
    """Probes the server and its replacements regularly, and restarts what has failed, until this task is cancelled.

    Then it drains and stops the current one. Triton does not do this itself: it reports that it is ready even after a
    model's process has died, and never restarts that process.

    Raises LaunchError after `max_failed_starts` failed starts in a row.
    """
    while True:
        may_drain = True
        try:
            reason = await _wait_for_failure(server, policy.probe_interval_s)
            may_drain = False  # a failed server would not drain either
        finally:
            await server.stop(may_drain)
        on_failure(f"{reason}; starting it again")
        server = await _start_again(restart, on_failure, policy)


async def _wait_for_failure(server: Server, probe_interval_s: float) -> str:
    ended = asyncio.ensure_future(server.wait_until_ended())
    try:
        while True:
            done, _ = await asyncio.wait([ended], timeout=probe_interval_s)
            if done:
                return "the server has ended"
            try:
                await server.probe()
            except ServerError as error:
                return f"the server has failed: {error}"
    finally:
        ended.cancel()


async def _start_again(
    restart: Callable[[], Awaitable[Server]], on_failure: Callable[[str], None], policy: RestartPolicy
) -> Server:
    for attempt in range(1, policy.max_failed_starts):
        try:
            return await restart()
        except LaunchError as error:
            on_failure(str(error))
            await asyncio.sleep(policy.first_backoff_s * 2 ** (attempt - 1))
    return await restart()  # the last attempt; its error goes to the caller
