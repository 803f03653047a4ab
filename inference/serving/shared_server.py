"""One server for all editors of a user: who looks for a server finds the one that runs, or starts it.

Each model has a folder of its own with three files:
- `server.lock` is locked by the process that serves, as long as it lives; so a lock that can be had means no server,
  however the last one ended.
- `server.json` says where it listens, once it answers.
- `clients.lock` is locked, shared, by everyone who uses the server; so a lock that can be had alone means no clients,
  and a server that was started for them ends itself some time after.
`start.lock` lets one client at a time start a server.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Self

from inference.config import EngineConfig
from inference.errors import LaunchError
from inference.protocol import characters, completion
from inference.serving.import_root import IMPORT_ROOT, is_checkout
from inference.serving.launcher import Endpoint

_POLL_S = 0.1
_NUM_LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """The folder in which the server for one model is found. Others than its owner have no access."""

    folder: Path

    @classmethod
    def create(cls, runtime_dir: Path, model: EngineConfig) -> Self:
        """The entry for this model, settings and wire; each difference makes another. Raises LaunchError."""
        model_dir = model.model_dir.resolve()
        tensors = [completion.REQUEST_TYPES, completion.CHUNK_TYPES, characters.REQUEST_TYPES, characters.ANSWER_TYPES]
        identity = f"{platform.node()} {model} {[list(types) for types in tensors]}"
        folder = runtime_dir / f"{model_dir.name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"cannot make {folder}: {error.strerror}; choose another with --state-dir") from None
        if folder.stat().st_uid != os.getuid():
            raise LaunchError(f"{folder} belongs to another user; choose another folder with --state-dir")
        return cls(folder)

    @property
    def log_path(self) -> Path:
        """What a server that was started for its clients says."""
        return self.folder / "serve.log"

    def find(self) -> Endpoint | None:
        """Where the server listens; None if there is none or it does not answer yet."""
        if not self.is_served():
            return None
        try:
            return Endpoint(**json.loads(self._json_path.read_text()))
        except FileNotFoundError:
            return None

    def is_served(self) -> bool:
        """True while a process serves or is about to."""
        with _open(self.folder / "server.lock") as file:
            return not _try_lock(file, fcntl.LOCK_SH)

    async def register(self) -> "Registration | None":
        """For the process that serves: its claim on the entry, or None while another process serves."""
        lock = _open(self.folder / "server.lock")
        for _ in range(10):  # not once, because `is_served` holds the lock for a moment
            if _try_lock(lock, fcntl.LOCK_EX):
                return Registration(self, lock)
            await asyncio.sleep(_POLL_S / 2)
        lock.close()
        return None

    @property
    def _json_path(self) -> Path:
        return self.folder / "server.json"


class Registration:
    """A serving process's claim on an entry, until it is closed or the process ends."""

    def __init__(self, entry: ServerEntry, lock: IO[str]) -> None:
        """Use `ServerEntry.register`."""
        self._entry = entry
        self._lock = lock
        self._withdraw()  # what a server that was killed has left

    def publish(self, endpoint: Endpoint) -> None:
        """Tells clients where the server listens."""
        fresh = self._entry._json_path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(endpoint)))
        fresh.replace(self._entry._json_path)

    async def withdraw_when_idle(self, idle_s: float) -> None:
        """Returns when nobody has used the server for so long; from then on no client finds it."""
        with _open(self._entry.folder / "clients.lock") as clients:
            idle_since: float | None = None
            clock = asyncio.get_running_loop().time
            while True:
                if _try_lock(clients, fcntl.LOCK_EX):
                    idle_since = clock() if idle_since is None else idle_since
                    if clock() - idle_since >= idle_s:
                        return self._withdraw()  # while the lock is held, so that no client reads the entry meanwhile
                    fcntl.flock(clients, fcntl.LOCK_UN)
                else:
                    idle_since = None
                await asyncio.sleep(min(1.0, idle_s / 4))

    def close(self) -> None:
        """Leaves the entry to the next server."""
        self._withdraw()
        self._lock.close()

    def _withdraw(self) -> None:
        self._entry._json_path.unlink(missing_ok=True)


class ServerLease:
    """A client's use of a shared server. The server stays while any lease is open."""

    def __init__(self, endpoint: Endpoint, lock: IO[str]) -> None:
        """Use `lease_server`."""
        self.endpoint = endpoint
        self._lock = lock

    def close(self) -> None:
        """Ends the use. Also when the process ends, however it ends."""
        self._lock.close()


async def lease_server(entry: ServerEntry, command: Sequence[str], on_progress: Callable[[str], None]) -> ServerLease:
    """The server of the entry, started by the command if none runs.

    The command must register with the same entry; it runs detached, so that it outlives this process.
    Raises LaunchError with the end of its log.
    """
    clients = await _wait_for_lock(entry.folder / "clients.lock", fcntl.LOCK_SH)
    try:
        while (endpoint := entry.find()) is None:
            if not entry.is_served():
                await _start_or_wait(entry, command, on_progress)
            await asyncio.sleep(_POLL_S)
    except BaseException:
        clients.close()
        raise
    return ServerLease(endpoint, clients)


async def _start_or_wait(entry: ServerEntry, command: Sequence[str], on_progress: Callable[[str], None]) -> None:
    start = _open(entry.folder / "start.lock")
    with start:
        if not _try_lock(start, fcntl.LOCK_EX) or entry.is_served():
            return
        on_progress(f"starting a server for all editors, log in {entry.log_path}")
        with entry.log_path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=IMPORT_ROOT if is_checkout() else entry.folder,  # `python -m` imports from there first
                start_new_session=True,
            )
        while entry.find() is None:
            if process.returncode is not None:
                lines = entry.log_path.read_text(errors="replace").splitlines()[-_NUM_LOG_LINES:]
                raise LaunchError("the server ended while starting:\n" + "\n".join(lines))
            await asyncio.sleep(_POLL_S)


async def _wait_for_lock(path: Path, kind: int) -> IO[str]:
    file = _open(path)
    while not _try_lock(file, kind):
        await asyncio.sleep(_POLL_S)
    return file


def _open(path: Path) -> IO[str]:
    return path.open("a")


def _try_lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
