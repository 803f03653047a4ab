"""How much memory a server takes, as Linux says."""

import contextlib
import re
import socket
import struct
from pathlib import Path

from inference.serving.calls import SOCKET_SCHEME
from inference.serving.private_files import open_folder

_PROC = Path("/proc")


def measure_memory(url: str) -> int | None:
    """Returns the bytes of the process that listens at a socket and of those it has started, each shared page once.

    None where the system does not say it.
    """
    path = Path(url.removeprefix(SOCKET_SCHEME))
    with contextlib.suppress(OSError, AttributeError), open_folder(path.parent) as folder:
        with socket.socket(socket.AF_UNIX) as client:  # type: ignore[attr-defined,unused-ignore]
            client.connect(str(folder / path.name))
            owner, *_ = struct.unpack(
                "3i",
                client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12),  # type: ignore[attr-defined,unused-ignore]
            )
        return sum(_read_number(each / "smaps_rollup", "Pss: +([0-9]+)") for each in _find_tree(owner)) * 1024
    return None


def _find_tree(owner: int) -> list[Path]:
    parents = {each: _read_number(each / "status", "PPid:\t([0-9]+)") for each in _PROC.glob("[0-9]*")}
    tree = [_PROC / str(owner)]
    for each in tree:  # it grows
        tree += [child for child, parent in parents.items() if str(parent) == each.name]
    return tree


def _read_number(path: Path, pattern: str) -> int:
    """Returns 0 for a process that has ended."""
    with contextlib.suppress(OSError):
        if found := re.search(pattern, path.read_text()):
            return int(found[1])
    return 0
