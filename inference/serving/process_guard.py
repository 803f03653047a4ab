"""The process guard: the parent process of tritonserver. It stops the server when the launcher's process ends.

It is run by path (`python -I -S process_guard.py GRACE_S SOCKET_PREFIX COMMAND...`) and imports the standard library
only. Its standard input is a pipe whose other end the launcher holds.

- If the pipe closes, the guard sends SIGTERM, waits up to GRACE_S for the running streams, and kills the server's
  process group. The launcher closes the pipe to stop the server; the kernel closes it when the launcher's process ends.
- If a byte arrives, the guard kills the process group at once.
- If the guard itself is killed, the kernel sends SIGTERM to the server (PR_SET_PDEATHSIG).

After the server has ended, the guard removes its shared memory, and its sockets in the working folder. When a guard
starts, it kills servers whose guard was killed, and removes their shared memory. At its end, such a server would remove
the sockets of the new one; and its stubs do not end with it.

Requests pass through that memory, so other users must not read it. A umask is not enough: the library that creates the
memory (Boost) sets mode 0644 on each region with fchmod. So the server runs under a seccomp filter that rejects an
fchmod which would give access to other users.
"""

import contextlib
import ctypes
import os
import platform
import re
import select
import signal
import struct
import subprocess
import sys
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38  # linux/prctl.h
_MAX_FILES = 2**16  # the usual limit is 1,024
_SECCOMP_MODE_FILTER = 2
_OTHERS = 0o077  # the permissions of the file's group and of other users
_FCHMOD = {"x86_64": (0xC000003E, 91), "aarch64": (0xC00000B7, 52)}  # machine: its AUDIT_ARCH, the number of fchmod


def main(arguments: list[str]) -> int:
    """Runs the command until it ends or the pipe closes, and returns its exit status."""
    grace_s, socket_prefix, command = float(arguments[0]), arguments[1], arguments[2:]
    _kill_stale_servers()
    _remove_stale_regions()
    _remove(Path(), socket_prefix)
    _keep_files_private()
    _allow_files()
    prefix = f"{_region_prefix()}{os.getpid()}_"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = subprocess.Popen(
        [*command, f"--backend-config=python,shm-region-prefix-name={prefix}"],
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
    )
    may_drain = True
    try:
        may_drain = _wait_for_stop(server)
    finally:
        _end_server(server, grace_s if may_drain else 0.0)
        _remove(_SHARED_MEMORY, prefix)
        _remove(Path(), socket_prefix)
    return server.returncode


def _allow_files() -> None:
    """tritonserver 2.51 never closes some of the connections on which a stream was cancelled just as it ended."""
    if sys.platform != "win32":  # where this module is imported, too
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_MAX_FILES, most), most))


def _wait_for_stop(server: "subprocess.Popen[bytes]") -> bool:
    """Waits until the pipe closes, a byte arrives or the server ends. Returns False for a byte, which means: kill."""
    select.select([sys.stdin, os.pidfd_open(server.pid)], [], [])  # type: ignore[attr-defined,unused-ignore]
    is_readable, _, _ = select.select([sys.stdin], [], [], 0)
    return not (is_readable and os.read(sys.stdin.fileno(), 1))


def _end_server(server: "subprocess.Popen[bytes]", grace_s: float) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        if grace_s:
            server.terminate()
            server.wait(grace_s)
    except subprocess.TimeoutExpired:
        print("process guard: the server did not end in time and is killed", file=sys.stderr)
    with contextlib.suppress(ProcessLookupError):
        # The server if it still runs, and orphaned stubs. Windows has neither name.
        os.killpg(server.pid, signal.SIGKILL)  # type: ignore[attr-defined,unused-ignore]
    server.wait()


def _keep_files_private() -> None:
    """Denies other users access to files that this process and its children create, also after an fchmod.

    Exits with a message if the kernel has no seccomp filters. A filter requires `no_new_privs`, so a setuid program
    that the server starts runs without its privileges.
    """
    os.umask(_OTHERS)
    if platform.machine() not in _FCHMOD:
        sys.exit(f"process guard: cannot keep requests private on this machine: {platform.machine()} is not supported")
    program = ctypes.create_string_buffer(_build_filter(*_FCHMOD[platform.machine()]))
    header = struct.pack("@HP", len(program.raw) // 8, ctypes.addressof(program))
    if _prctl(_PR_SET_NO_NEW_PRIVS, 1) or _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header):
        sys.exit("process guard: cannot keep requests private: this kernel does not accept a seccomp filter")


def _build_filter(machine: int, fchmod: int) -> bytes:
    """Returns a seccomp program (linux/filter.h): fchmod fails with EPERM if its mode gives access to other users."""
    load, jump_if_equal, jump_if_any_bit, stop = 0x20, 0x15, 0x45, 0x06
    allow, fail = 0x7FFF0000, 0x00050000 | 1  # 1 is EPERM
    steps = [
        (load, 0, 0, 4),  # seccomp_data.arch
        (jump_if_equal, 0, 4, machine),
        (load, 0, 0, 0),  # seccomp_data.nr
        (jump_if_equal, 0, 2, fchmod),
        (load, 0, 0, 24),  # the lower half of seccomp_data.args[1], the mode
        (jump_if_any_bit, 1, 0, _OTHERS),
        (stop, 0, 0, allow),
        (stop, 0, 0, fail),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _prctl(option: int, *arguments: int | bytes) -> int:
    """Returns 0 on success."""
    values = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in (*arguments, 0, 0, 0)]
    return int(ctypes.CDLL(None).prctl(option, *values[:4]))


def _region_prefix() -> str:
    """The prefix contains the PID namespace, because containers can share /dev/shm without sharing process ids."""
    namespace = "".join(re.findall(r"\d+", os.readlink("/proc/self/ns/pid")))
    return f"triton_python_backend_shm_region_midtoken_{namespace}_"


def _remove(folder: Path, prefix: str) -> None:
    for each in folder.glob(f"{prefix}*"):
        each.unlink(missing_ok=True)


def _kill_stale_servers() -> None:
    """Kills servers and their stubs, and waits for their end. Each has the name of its regions as an argument."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if _is_stale((process / "cmdline").read_text(errors="replace")):
                file = os.pidfd_open(int(process.name))  # type: ignore[attr-defined,unused-ignore]
                os.kill(int(process.name), signal.SIGKILL)  # type: ignore[attr-defined,unused-ignore]
                select.select([file], [], [])
                os.close(file)


def _remove_stale_regions() -> None:
    for region in _SHARED_MEMORY.glob(f"{_region_prefix()}*"):
        if _is_stale(region.name):
            with contextlib.suppress(PermissionError):  # another user's region
                region.unlink(missing_ok=True)


def _is_stale(text: str) -> bool:
    """Whether the text has the prefix of a guard's regions, and that guard has ended."""
    pid = re.search(f"{_region_prefix()}([0-9]+)_", text)
    return pid is not None and not Path("/proc", pid[1]).exists()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
