"""Runs a program so that everything is seen that it writes and asks of the network, whatever library does it.

The program and all its processes run in namespaces of their own. Their file system is an overlay, whose upper layer
holds what they write. Their network has no other device than `lo`, which all addresses belong to, and a packet socket
on it sees each address and each look-up of a name. Nothing reaches another machine.
"""

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOME = "/home/stranger"
_UNSHARE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_ROUTES = ("link set lo up", "route add local default dev lo", "-6 route add local default dev lo")
_ALL_PROTOCOLS = 0x0003
_DNS = 53
_SYSTEM = ("proc", "sys", "dev")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a program did."""

    status: int
    output: str
    hosts: list[str]  # names that it looked up, and addresses of other machines that it sent something to
    files: list[str]  # that it made or changed


def can_watch() -> bool:
    """Whether this user may make the namespaces and the overlay: root may, unless a container forbids it."""
    return (
        os.getuid() == 0
        and all(map(shutil.which, ("unshare", "ip")))
        and subprocess.run([*_UNSHARE, "true"], stderr=subprocess.DEVNULL).returncode == 0
    )


def watch(command: Sequence[str | Path], environment: Mapping[str, str] = {}) -> Seen:
    """Runs a command to its end, with an empty home folder, and no environment but this one and the path."""
    with tempfile.TemporaryDirectory(prefix="midtoken-watched-") as name:
        settings = {"HOME": HOME, "PATH": os.environ["PATH"], **environment}
        inner = [sys.executable, "-m", "tests.support.watched_run", name, *map(str, command)]
        done = subprocess.run([*_UNSHARE, *inner], env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, report = done.stdout.decode(errors="replace"), Path(name, "report.json")
        if not report.exists():
            raise RuntimeError(f"the program could not be watched: {output}")
        return Seen(done.returncode, output, **json.loads(report.read_bytes()))


def _main(scratch: Path, command: Sequence[str]) -> int:
    """Runs the command in the new namespaces, and writes what was seen to the scratch folder."""
    written, merged = _make_overlay(scratch)
    for arguments in _ROUTES:
        subprocess.run(["ip", *arguments.split()])
    hosts = set[str]()
    threading.Thread(target=_collect_hosts, args=(hosts,), daemon=True).start()
    status = subprocess.call(["chroot", merged, "env", "-C", os.getcwd(), *command])
    _end_others()
    report = {"hosts": sorted(hosts), "files": sorted(_list_files(written))}
    (scratch / "report.json").write_text(json.dumps(report))
    return status


def _make_overlay(scratch: Path) -> tuple[Path, Path]:
    """The folder with all that is written, and the one that is the program's file system."""

    def mount(*arguments: str | Path) -> None:
        subprocess.run(["mount", *arguments], check=True)

    layers = scratch / "layers"  # of a file system of memory, because that of /tmp may be an overlay itself
    layers.mkdir()
    mount("-t", "tmpfs", "tmpfs", layers)
    written, merged = layers / "written", layers / "merged"
    for folder in (written / HOME[1:], written / "dev/shm", layers / "work", merged):
        folder.mkdir(parents=True)
    mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={written},workdir={layers / 'work'}", merged)
    for name in _SYSTEM:
        mount("--rbind", f"/{name}", merged / name)
    mount("--bind", written / "dev/shm", merged / "dev/shm")
    return written, merged


def _end_others() -> None:
    """Ends the processes that the command left, such as a shared server, as a logout does: some libraries send then."""
    os.kill(-1, signal.SIGTERM)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()  # this process is the first of its namespace, which gets those of parents that have ended


def _collect_hosts(hosts: set[str]) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL_PROTOCOLS)) as packets:
        while True:
            hosts |= set(_find_hosts(packets.recv(65535)))


def _find_hosts(packet: bytes) -> Iterator[str]:
    """The name that a packet of IP asks for, or else its destination if that is another machine's."""
    is_long = packet[0] >> 4 == 6
    start = 40 if is_long else 4 * (packet[0] & 15)
    if int.from_bytes(packet[start + 2 : start + 4], "big") == _DNS:
        yield _read_name(packet[start + 20 :])
    elif not (address := ipaddress.ip_address(packet[24:40] if is_long else packet[16:20])).is_loopback:
        yield str(address)


def _read_name(question: bytes) -> str:
    labels = []
    while question and question[0]:
        labels.append(question[1 : 1 + question[0]].decode(errors="replace"))
        question = question[1 + question[0] :]
    return ".".join(labels)


def _list_files(written: Path) -> Iterator[str]:
    for path in written.rglob("*"):
        if not (path.is_dir() or path.is_char_device() or path.suffix == ".pyc"):  # a device: the file was removed
            yield f"/{path.relative_to(written)}"


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), sys.argv[2:]))
