"""A small process that stands between us and tritonserver, so that nothing is left behind however we end.

It is run by path (`python -I -S guardian.py GRACE_S COMMAND...`) and needs the standard library only. Its standard
input is a pipe that the launcher holds: when that closes, because the launcher asks for it or because it has died,
the guardian lets the server finish its streams, then kills what is left of the server's process group and removes
its shared memory. A byte on the pipe means: kill at once. If the guardian itself is killed, the kernel tells the
server to end (PR_SET_PDEATHSIG).
"""

import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Runs the command until it ends or the pipe closes, and returns its exit status."""
    grace_s, command = float(arguments[0]), arguments[1:]
    _remove_stale_regions()
    prefix = f"{_region_prefix()}{os.getpid()}_"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = subprocess.Popen(
        [*command, f"--backend-config=python,shm-region-prefix-name={prefix}"],
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=_end_with_parent,
    )
    may_drain = True
    try:
        may_drain = _wait_for_order(server)
    finally:
        _end_server(server, grace_s if may_drain else 0.0)
        for region in _SHARED_MEMORY.glob(f"{prefix}*"):
            region.unlink(missing_ok=True)
    return server.returncode


def _wait_for_order(server: "subprocess.Popen[bytes]") -> bool:
    pidfd = os.pidfd_open(server.pid)
    select.select([sys.stdin, pidfd], [], [])
    is_order, _, _ = select.select([sys.stdin], [], [], 0)
    return not (is_order and os.read(sys.stdin.fileno(), 1))


def _end_server(server: "subprocess.Popen[bytes]", grace_s: float) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        if grace_s:
            server.terminate()
            server.wait(grace_s)
    except subprocess.TimeoutExpired:
        print("guardian: the server did not end in time and is killed", file=sys.stderr)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)  # the server if it is still there, and orphaned stubs
    server.wait()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _region_prefix() -> str:
    """Names carry the PID namespace, because containers may share /dev/shm and not their process ids."""
    namespace = "".join(re.findall(r"\d+", os.readlink("/proc/self/ns/pid")))
    return f"triton_python_backend_shm_region_midtoken_{namespace}_"


def _remove_stale_regions() -> None:
    prefix = _region_prefix()
    for region in _SHARED_MEMORY.glob(f"{prefix}*"):
        pid = region.name.removeprefix(prefix).partition("_")[0]
        if not Path("/proc", pid).exists():
            region.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
