"""Another user of the machine, as whom only root can act."""

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from inference.serving.loopback import ADDRESS

NOBODY = 65534

needs_other_user = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Inside, sockets that this process makes belong to the user `nobody`."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def can_other_user_listen(port: int) -> bool:
    """Whether the user `nobody` can listen on the port now, with every option that makes the kernel generous."""
    with as_nobody(), socket.socket() as listener:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            listener.bind((ADDRESS, port))
            listener.listen()
        except OSError:
            return False
    return True
