"""Another user of the machine, as whom only root can act."""

import os
import socket

from inference.serving.endpoint import ADDRESS

NOBODY = 65534


def can_other_user_listen(port: int) -> bool:
    """Whether the user `nobody` can listen on the port now, with every option that makes the kernel generous."""
    os.seteuid(NOBODY)  # a socket belongs to the user who made it
    try:
        listener = socket.socket()
    finally:
        os.seteuid(0)
    with listener:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            listener.bind((ADDRESS, port))
            listener.listen()
        except OSError:
            return False
    return True
