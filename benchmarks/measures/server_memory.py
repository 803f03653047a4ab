"""How much memory a server takes, as Linux says."""

import contextlib
import socket
import struct
from pathlib import Path

from inference.serving.calls import SOCKET_SCHEME
from inference.serving.private_files import open_folder


def measure_memory(url: str) -> int | None:
    """Returns the bytes of the process that listens at a socket and of those it has started, each shared page once.

    None where the system does not say it.
    """
    path = Path(url.removeprefix(SOCKET_SCHEME))
    with contextlib.suppress(OSError, AttributeError, ImportError), open_folder(path.parent) as folder:
        import psutil  # here, because an installation without `local` lacks it

        with socket.socket(socket.AF_UNIX) as client:  # type: ignore[attr-defined,unused-ignore]
            client.connect(str(folder / path.name))
            owner, *_ = struct.unpack(
                "3i",
                client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12),  # type: ignore[attr-defined,unused-ignore]
            )
        with contextlib.suppress(psutil.Error):  # one of them has ended
            server = psutil.Process(owner)
            return int(sum(each.memory_full_info().pss for each in (server, *server.children(recursive=True))))
    return None
