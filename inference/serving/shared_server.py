"""One server for all editors of a user: a client that looks for a server finds the one that runs, or starts it.

Each model has a folder of its own with these files:
- `server.lock` is locked by the process that serves, for as long as it lives. So a lock that is free means that there
  is no server, however the last one ended.
- `server.json` says where the server listens, once it answers.
- `clients.lock` is locked, shared, by every client. So a lock that can be taken alone means that there are no clients;
  a server that was started for them then ends after some time.
- `start.lock` is locked by the one client that starts a server.
"""

import asyncio
import hashlib
import json
import platform
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from inference.config import EngineConfig
from inference.errors import LaunchError
from inference.protocol import characters, completion
from inference.serving.endpoint import Endpoint
from inference.serving.file_lock import FileLock, LockKind
from inference.serving.import_root import IMPORT_ROOT, is_checkout
from inference.serving.private_files import make_private_folder, open_private

_POLL_S = 0.1
_NUM_LOG_LINES = 20
_MAX_NAME_CHARS = 60  # a file system takes names of 255 bytes, and a character may be four
_ERROR_PREFIX = "midtoken: "  # with which a command of ours prints the error that it ends with


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """The folder in which the server for one model is found. Other users have no access to it."""

    folder: Path

    @classmethod
    def create(cls, runtime_dir: Path, model: EngineConfig) -> Self:
        """The entry for this model, these settings and this protocol. Raises LaunchError."""
        model_dir = model.model_dir.resolve()
        tensors = [completion.REQUEST_TYPES, completion.CHUNK_TYPES, characters.REQUEST_TYPES, characters.ANSWER_TYPES]
        identity = f"{platform.node()} {model} {[list(types) for types in tensors]}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        folder = runtime_dir / f"{model_dir.name[:_MAX_NAME_CHARS]}-{digest}"
        make_private_folder(folder)
        return cls(folder)

    @property
    def log_path(self) -> Path:
        """The output of a server that was started by a client."""
        return self.folder / "serve.log"

    def find(self) -> Endpoint | None:
        """Where the server listens; None if there is none or it does not answer yet. Raises LaunchError."""
        return _read_endpoint(self._json_path) if self.is_served() else None

    def is_served(self) -> bool:
        """True while a process serves or is about to. Raises LaunchError."""
        with FileLock(self.folder / "server.lock") as lock:
            return not lock.try_acquire(LockKind.SHARED)

    async def register(self) -> "Registration | None":
        """For the process that serves: its claim on the entry, or None while another process serves.

        Raises LaunchError.
        """
        lock = FileLock(self.folder / "server.lock")
        for _ in range(10):  # not once, because `is_served` holds the lock for a moment
            if lock.try_acquire(LockKind.EXCLUSIVE):
                return Registration(self, lock)
            await asyncio.sleep(_POLL_S / 2)
        lock.close()
        return None

    @property
    def _json_path(self) -> Path:
        return self.folder / "server.json"


class Registration:
    """A serving process's claim on an entry, until it is closed or the process ends."""

    def __init__(self, entry: ServerEntry, lock: FileLock) -> None:
        """Use `ServerEntry.register`."""
        self._entry = entry
        self._lock = lock
        self._withdraw()  # a server that was killed has left its address

    def publish(self, endpoint: Endpoint) -> None:
        """Tells clients where the server listens. Raises LaunchError, as on a full disk."""
        path = self._entry._json_path
        fresh = path.with_suffix(".new")
        try:
            with open_private(fresh, "w") as file:
                file.write(json.dumps(asdict(endpoint)))
            fresh.replace(path)
        except OSError as error:
            raise LaunchError(f"cannot write {path}, by which clients find the server: {error.strerror}") from None

    async def withdraw_when_idle(self, idle_s: float) -> None:
        """Returns when the server has had no client for `idle_s`; from then on no client finds it.

        Raises LaunchError.
        """
        with FileLock(self._entry.folder / "clients.lock") as clients:
            idle_since: float | None = None
            clock = asyncio.get_running_loop().time
            while True:
                if clients.try_acquire(LockKind.EXCLUSIVE):
                    idle_since = clock() if idle_since is None else idle_since
                    if clock() - idle_since >= idle_s:
                        return self._withdraw()  # while the lock is held, so that no client reads the entry meanwhile
                    clients.release()
                else:
                    idle_since = None
                await asyncio.sleep(min(1.0, idle_s / 4))

    def close(self) -> None:
        """Gives the entry up; the next server can register."""
        try:
            self._withdraw()
        finally:
            self._lock.close()

    def _withdraw(self) -> None:
        path = self._entry._json_path
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise LaunchError(f"cannot remove {path}: {error.strerror}") from None


class ServerLease:
    """A client's use of a shared server. The server keeps running while any lease is open."""

    def __init__(self, endpoint: Endpoint, lock: FileLock) -> None:
        """Use `lease_server`."""
        self.endpoint = endpoint
        self._lock = lock

    def close(self) -> None:
        """Ends the use. The end of the process does so too."""
        self._lock.close()


async def lease_server(entry: ServerEntry, command: Sequence[str], on_progress: Callable[[str], None]) -> ServerLease:
    """The server of the entry, started by the command if none runs.

    The command must register with the same entry. It runs detached and outlives this process.
    Raises LaunchError, with the end of the server's log if it could not start.
    """
    clients = FileLock(entry.folder / "clients.lock")
    try:
        while not clients.try_acquire(LockKind.SHARED):
            await asyncio.sleep(_POLL_S)
        while (endpoint := entry.find()) is None:
            if not entry.is_served():
                await _start_or_wait(entry, command, on_progress)
            await asyncio.sleep(_POLL_S)
    except BaseException:
        clients.close()
        raise
    return ServerLease(endpoint, clients)


async def _start_or_wait(entry: ServerEntry, command: Sequence[str], on_progress: Callable[[str], None]) -> None:
    with FileLock(entry.folder / "start.lock") as start:
        if not start.try_acquire(LockKind.EXCLUSIVE) or entry.is_served():
            return
        on_progress(f"starting a server for all editors, log in {entry.log_path}")
        process = _start_detached(entry, command)
        while entry.find() is None:
            if process.poll() is not None:
                raise LaunchError(_describe_end(entry.log_path))
            await asyncio.sleep(_POLL_S)


def _describe_end(log_path: Path) -> str:
    """The error that the server ended with; the end of its log where it has printed none."""
    lines = log_path.read_text(errors="replace").splitlines()
    if not lines:
        return f"the server ended while starting, and its log is empty, as on a full disk: {log_path}"
    for index, line in enumerate(lines):
        if line.startswith(_ERROR_PREFIX):
            return "\n".join([line.removeprefix(_ERROR_PREFIX), *lines[index + 1 :]])
    return "the server ended while starting:\n" + "\n".join(lines[-_NUM_LOG_LINES:])


def _start_detached(entry: ServerEntry, command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Not a subprocess of asyncio: from Python 3.12 on, that one is killed when its event loop is gone."""
    try:
        with open_private(entry.log_path, "wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=IMPORT_ROOT if is_checkout() else entry.folder,  # `python -m` imports from there first
                start_new_session=True,
            )
    except OSError as error:
        raise LaunchError(f"cannot run {command[0]} with a log in {entry.folder}: {error.strerror}") from None
    # Waits for the process, so that it does not stay a zombie if it ends before this one.
    threading.Thread(target=process.wait, name="wait for the shared server", daemon=True).start()
    return process


def _read_endpoint(path: Path) -> Endpoint | None:
    """None for a file that is missing or that no `publish` has finished."""
    try:
        ports = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise LaunchError(f"cannot read {path}: {error.strerror}") from None
    names = Endpoint.__dataclass_fields__.keys()
    if not isinstance(ports, dict) or ports.keys() != names or not all(type(port) is int for port in ports.values()):
        return None
    return Endpoint(**ports)
