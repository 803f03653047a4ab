"""One server for all editors of a user. A client uses the server that is running, or starts one.

Each model has its own folder with these files:
- `server.lock`: the serving process holds it exclusively until it ends. If it is free, no server is running, even if
  the last one was killed.
- `server.url`: where it listens, with the secret if it has one. It exists once the server answers.
- `clients.lock`: every client holds it shared. If it can be acquired exclusively, there are no clients. A server that
  a client started ends when there have been none for some time.
- `start.lock`: the client that is starting a server holds it exclusively.
"""

import asyncio
import contextlib
import hashlib
import os
import platform
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from inference.config import EngineConfig
from inference.errors import LaunchError
from inference.platforms import DETACHED
from inference.serving.private_files import FileLock, make_private_folder, open_private
from inference.serving.triton_installation import IMPORT_ROOT, is_checkout

_PACKAGES = ("inference", "trie_cache", "midtoken")  # with the models' adapters and the default model
_POLL_S = 0.1
_MAX_LOG_CHARS = 300
_MAX_NAME_CHARS = 60  # a file system takes names of 255 bytes, and a character may be four
_ERROR_PREFIX = "\nmidtoken: "  # with which a command of ours prints the error that it ends with


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """The folder through which clients find the server of one model. Other users have no access to it."""

    folder: Path

    @classmethod
    def create(cls, runtime_dir: Path, model: EngineConfig, is_embedded: bool, root: Path = IMPORT_ROOT) -> Self:
        """Returns the entry for this model, these settings, and the code below `root`. Raises LaunchError.

        A server of other code, as before an upgrade, has another one. It ends when its last client has.
        """
        model_dir = model.model_dir.resolve()
        settings = replace(model, graph_dir=None)  # files that make no difference to clients
        runtime = "embedded" if is_embedded else "sockets"
        identity = f"{platform.node()} {runtime} {settings} {model.engine_key} {stamp_code(root)}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        folder = runtime_dir / f"{model_dir.name[:_MAX_NAME_CHARS]}-{digest}"
        make_private_folder(folder)
        return cls(folder)

    @property
    def log_path(self) -> Path:
        """The output of a server that was started by a client."""
        return self.folder / "serve.log"

    def find(self) -> str | None:
        """Returns the server's URL; None if there is none or it is still starting. Raises LaunchError."""
        return _read_url(self._url_path) if self.is_served() else None

    def is_served(self) -> bool:
        """True while a process serves this entry or is starting to. Raises LaunchError."""
        with FileLock(self.folder / "server.lock") as lock:
            return not lock.try_acquire(shared=True)

    async def register(self) -> "Registration | None":
        """Claims the entry for this process, which will serve it. Returns None if another process serves it already.

        Raises LaunchError.
        """
        lock = FileLock(self.folder / "server.lock")
        for _ in range(10):  # more than once, because a client's `is_served` holds the lock for a moment
            if lock.try_acquire(shared=False):
                return Registration(self, lock)
            await asyncio.sleep(_POLL_S / 2)
        lock.close()
        return None

    @property
    def _url_path(self) -> Path:
        return self.folder / "server.url"


class Registration:
    """The serving process's claim on an entry. It lasts until `close` or the end of the process."""

    def __init__(self, entry: ServerEntry, lock: FileLock) -> None:
        """Use `ServerEntry.register`."""
        self._entry = entry
        self._lock = lock
        self._withdraw()  # a killed server leaves its file behind

    def publish(self, url: str) -> None:
        """Writes the server's URL, for clients to find. Raises LaunchError, for example if the disk is full."""
        path = self._entry._url_path
        fresh = path.with_suffix(".new")
        try:
            with open_private(fresh, "wb") as file:
                file.write(os.fsencode(url))
            fresh.replace(path)
        except OSError as error:
            raise LaunchError(f"cannot write {path}, where clients find the server: {error.strerror}") from None

    async def withdraw_when_idle(self, idle_s: float, root: Path = IMPORT_ROOT) -> None:
        """Returns when the server has had no client for `idle_s`. From then on, no client finds it.

        If the code below `root` was replaced or removed, it returns as soon as there is no client. Raises LaunchError.
        """
        code = stamp_code(root)
        with FileLock(self._entry.folder / "clients.lock") as clients:
            clock = asyncio.get_running_loop().time
            idle_since = clock()
            while True:
                if not clients.try_acquire(shared=False):
                    idle_since = clock()
                elif clock() - idle_since >= idle_s or stamp_code(root) != code:
                    return self._withdraw()  # while the lock is held, so that no client can read the entry
                else:
                    clients.release()
                await asyncio.sleep(min(1.0, idle_s / 4))

    def close(self) -> None:
        """Gives the entry up; the next server can register."""
        try:
            self._withdraw()
        finally:
            self._lock.close()

    def _withdraw(self) -> None:
        self._entry._url_path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ServerLease:
    """A client's use of a shared server. The server keeps running while any lease is open."""

    url: str
    close: Callable[[], None]  # ends the lease; the end of the process does the same


async def lease_server(entry: ServerEntry, command: Sequence[str], on_progress: Callable[[str], None]) -> ServerLease:
    """Returns a lease of the entry's server. If no server is running, `command` is run to start one.

    The command must register with the same entry. It runs detached and outlives this process.
    Raises LaunchError. If the server could not start, the error says why.
    """
    with contextlib.ExitStack() as stack:
        clients = stack.enter_context(FileLock(entry.folder / "clients.lock"))
        while not clients.try_acquire(shared=True):
            await asyncio.sleep(_POLL_S)
        while (url := entry.find()) is None:
            if not entry.is_served():
                await _start_or_wait(entry, command, on_progress)
            await asyncio.sleep(_POLL_S)
        stack.pop_all()
        return ServerLease(url, clients.close)


async def _start_or_wait(entry: ServerEntry, command: Sequence[str], on_progress: Callable[[str], None]) -> None:
    with FileLock(entry.folder / "start.lock") as start:
        if not start.try_acquire(shared=False) or entry.is_served():
            return
        on_progress(f"starting a server for all editors, log in {entry.log_path}")
        process = _start_detached(entry, command)
        while entry.find() is None:
            if process.poll() is not None:
                raise LaunchError(_describe_end(entry.log_path))
            await asyncio.sleep(_POLL_S)


def stamp_code(root: Path) -> str:
    """Returns what differs when the files of midtoken below this folder are others, and when there are none."""
    paths = [path for package in _PACKAGES for path in Path(root, package).rglob("*")]
    states = []
    for path in sorted(path for path in paths if "__pycache__" not in path.parts):
        with contextlib.suppress(OSError):  # it is being replaced
            state = path.stat()
            states += [(str(path), state.st_size, state.st_mtime_ns)] if path.is_file() else []
    return hashlib.sha256(repr(states).encode()).hexdigest()


def _describe_end(log_path: Path) -> str:
    """The error that the server ended with, or if it has printed none, the last line of its log."""
    log = log_path.read_text(errors="replace").rstrip()
    if not log:
        return f"the server ended while starting, and its log is empty, as on a full disk: {log_path}"
    _, is_ours, error = f"\n{log}".rpartition(_ERROR_PREFIX)
    if is_ours:
        return " ".join(error.split())
    return f"the server ended while starting: {log.split(chr(10))[-1][:_MAX_LOG_CHARS]}. Its log is {log_path}"


def _start_detached(entry: ServerEntry, command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Does not use asyncio's subprocesses: from Python 3.12 on, they are killed when their event loop closes."""
    try:
        with open_private(entry.log_path, "wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=IMPORT_ROOT if is_checkout() else entry.folder,  # `python -m` imports from there first
                **DETACHED,
            )
    except OSError as error:
        raise LaunchError(f"cannot run {command[0]} with a log in {entry.folder}: {error.strerror}") from None
    # The thread waits for the process, so that it does not become a zombie if it ends before this one.
    threading.Thread(target=process.wait, name="wait for the shared server", daemon=True).start()
    return process


def _read_url(path: Path) -> str | None:
    """Returns None for a file that is missing, or empty after a crash of the machine."""
    try:
        return os.fsdecode(path.read_bytes()) or None
    except FileNotFoundError:
        return None
