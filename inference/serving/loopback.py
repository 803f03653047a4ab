"""Ports on loopback: who else may reach them, and what web pages may not ask there."""

import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Mapping

from inference.errors import LaunchError
from inference.platforms import ADDRESS

_HOST = re.compile(r"(\[[^]]+\]|[^][:@%]+)(:\d*)?")


def listen(port: int) -> socket.socket:
    """Returns a socket that listens on the port, or on a free one for 0. Nobody else can, until it is closed.

    Raises LaunchError.
    """
    try:
        listener = socket.create_server((ADDRESS, port))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise LaunchError(
            f"port {port} on {ADDRESS} cannot be used: {reason}; choose another, or 0 for any free one"
        ) from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections inherit this
    return listener


def find_stranger(headers: Mapping[str, str]) -> str | None:
    """Returns why an HTTP request to loopback is refused: a web page of another site sent it. None if it did not.

    A page whose name was made to point at loopback (DNS rebinding) sends its own name as `Host`. Browsers send `Origin`
    with what can change something, and say with `Sec-Fetch-Site` where other requests come from; links may. The port in
    `Host` is that of a tunnel's other end, if there is one.
    """
    host = headers.get("Host", "").lower()
    named = _HOST.fullmatch(host)
    if named is None or not is_loopback(named[1].strip("[]")):
        return f"This port answers only under a name or address of loopback, such as {ADDRESS}, [::1] or localhost."
    is_link = headers.get("Sec-Fetch-Mode") == "navigate"
    is_cross_site = headers.get("Sec-Fetch-Site") in ("cross-site", "same-site") and not is_link
    if is_cross_site or headers.get("Origin", f"http://{host}").lower() != f"http://{host}":
        return "This port answers programs and its own pages, not another site."
    return None


def is_loopback(host: str) -> bool:
    """Returns whether it is an IP address of this machine's own, which no other machine can reach, or localhost.

    Any other name is not, whatever it means now.
    """
    host = host.lower().removesuffix(".")
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host.partition("%")[0])
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    return host == "localhost"
