"""The one host that all editors of a user share. A client connects to the one that runs, or starts one.

Its socket is named by a digest of the version and the configuration. Beside the socket are two files:
- `.lock`: the host holds it as long as it lives. The lock decides who serves, not the socket: of two hosts that start
  at once the second ends, and a host that was killed leaves a socket on which nobody listens.
- `.log`: the output of a host that a client has started.

A client keeps a stream open as long as it needs the host (`Client.hold`). A host that a client has started ends when
no stream has been open for some time.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Self

from inference.client.channel import SOCKET_SCHEME
from inference.config import VARIABLE, EngineConfig
from inference.errors import LaunchError, ModelError
from inference.platforms import IMPORT_ROOT
from inference.private_files import FileLock, make_private_folder, open_folder, open_private

REFUSED = 3  # the exit status of a host that cannot use the model or a setting: another would end in the same way
_POLL_S = 0.05
_MAX_LOG_CHARS = 300
_ERROR_PREFIX = "\nmidtoken: "  # with which a program of ours prints the error that it ends with


@dataclass(frozen=True, slots=True)
class HostPlace:
    """Where the host of one configuration listens."""

    socket: Path

    @classmethod
    def find(cls, folder: Path, config: EngineConfig) -> Self:
        """Returns it, in a folder that it denies to other users. Raises LaunchError."""
        make_private_folder(folder)
        identity = f"{version('midtoken')} {config.to_json()}"
        return cls(folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.sock")

    @property
    def url(self) -> str:
        """The `url` argument of Client."""
        return f"{SOCKET_SCHEME}{self.socket}"

    @property
    def log(self) -> Path:
        """The output of a host that a client has started."""
        return self.socket.with_suffix(".log")

    @contextlib.contextmanager
    def claim(self) -> Iterator[bool]:
        """Tries to hold the lock inside the block, and yields whether it is held. Raises LaunchError."""
        with FileLock(self.socket.with_suffix(".lock")) as lock:
            yield lock.try_acquire()

    def is_served(self) -> bool:
        """Returns whether a host listens on the socket."""
        with (
            contextlib.suppress(OSError),
            open_folder(self.socket.parent) as short,
            socket.socket(socket.AF_UNIX) as client,
        ):
            client.setblocking(False)  # the queue of a host that hangs may be full, which is an error at once
            return client.connect_ex(str(short / self.socket.name)) == 0
        return False


async def ensure_served(
    place: HostPlace, config: EngineConfig, repository: Path, idle_s: float, on_progress: Callable[[str], None]
) -> None:
    """Returns when a host listens, and starts one if there is none.

    `idle_s`: how long a host that is started here lives on without clients. Raises ModelError or LaunchError with the
    reason of its end.
    """
    process: subprocess.Popen[bytes] | None = None
    while not place.is_served():
        if process is not None and (status := process.poll()):
            raise (ModelError if status == REFUSED else LaunchError)(_describe_end(place.log))
        if process is None or process.poll() is not None:  # it was the second of two
            with place.claim() as is_free:
                process = None
            if is_free:
                on_progress(f"starting a server for all editors, log in {place.log}")
                process = _start(place, config, repository, idle_s)
        await asyncio.sleep(_POLL_S)


def _start(place: HostPlace, config: EngineConfig, repository: Path, idle_s: float) -> "subprocess.Popen[bytes]":
    """Does not use asyncio's subprocesses: from Python 3.12 on, they are killed when their event loop closes."""
    command = (sys.executable, "-m", "inference.hosting.host", str(place.socket), str(repository), str(idle_s))
    try:
        with open_private(place.log, "wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=IMPORT_ROOT,  # `python -m` imports from there first
                env={**os.environ, VARIABLE: config.to_json()},
                start_new_session=True,  # Ctrl-C in the terminal, and its closing, do not reach it
            )
    except OSError as error:
        raise LaunchError(f"cannot run {command[0]} with the log {place.log}: {error.strerror}") from None
    # The thread waits for the process, so that it does not become a zombie if it ends before this one.
    threading.Thread(target=process.wait, name="wait for the host", daemon=True).start()
    return process


def _describe_end(log_path: Path) -> str:
    """The error that the host ended with, or if it has printed none, the last line of its log."""
    log = log_path.read_text(errors="replace").rstrip()
    if not log:
        return f"the server ended while starting, and its log is empty, as on a full disk: {log_path}"
    _, is_ours, error = f"\n{log}".rpartition(_ERROR_PREFIX)
    if is_ours:
        return " ".join(error.split())
    return f"the server ended while starting: {log.split(chr(10))[-1][:_MAX_LOG_CHARS]}. Its log is {log_path}"
