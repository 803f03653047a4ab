"""Keeps a server running that has its models in its own process: a child serves, and its parent starts another.

Only Linux has this. The child is a fork: it starts at once, and shares the memory of its parent's modules. Sockets that
were opened before stay open in the parent. So nobody can take their ports while a child is started again, and clients
that connect meanwhile are answered by the next one.

- If a child ends by itself, its parent ends with its exit status. The child says so through a socket, because a crash
  can have any exit status.
- Signals go from the parent to the child. If the parent was killed, the child ends as after a signal.
"""

import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from inference.errors import LaunchError

HAS_KEEPER = sys.platform == "linux"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))  # Windows lacks the last
_LONG_S = 60.0  # a child that lived for so long did start
_MAX_CRASHES = 5  # in a row, of children that lived for less


def keep_process(serve: Callable[[], int], say: Callable[[str], object]) -> int:
    """Calls `serve` in a child process, and again in another if that crashes. Returns its result, in parent and child.

    Call it before there are threads and event loops. Raises LaunchError after crashes in a row.
    """
    if sys.platform == "win32":
        raise LaunchError("Windows has no fork")
    num_crashes = 0
    while True:
        started_at = time.monotonic()
        own, childs = socket.socketpair()
        child = os.fork()
        if not child:
            own.close()
            return _serve(serve, childs)
        childs.close()
        with own:
            status, was_told_to_end = _wait(child)
            has_ended = own.recv(1) != b""
        if has_ended or was_told_to_end:
            return status if status >= 0 else 128 - status
        num_crashes = num_crashes + 1 if time.monotonic() - started_at < _LONG_S else 1
        reason = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
        if num_crashes == _MAX_CRASHES:
            raise LaunchError(f"the server has crashed {num_crashes} times in a row, at last with {reason}")
        say(f"the server has crashed with {reason}; starting it again")
        time.sleep(2.0 ** (num_crashes - 1) - 1)


def _serve(serve: Callable[[], int], parent: socket.socket) -> int:
    """What a child does."""
    if sys.platform == "win32":
        return serve()
    os.setsid()  # Ctrl-C in the terminal reaches the parent only
    faulthandler.enable()  # the log then says where a crash was

    def end_with_parent() -> None:
        parent.recv(1)  # returns at the end of the parent
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, name="midtoken-parent", daemon=True).start()
    try:
        return serve()
    finally:
        with suppress(OSError):  # it was killed
            parent.send(b"e")


def _wait(child: int) -> tuple[int, bool]:
    """The exit status of a child, or minus the signal that ended it, and whether this process was told to end."""
    numbers: list[int] = []

    def pass_on(number: int, _: object) -> None:
        numbers.append(number)
        os.kill(child, number)

    before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), bool(numbers)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
