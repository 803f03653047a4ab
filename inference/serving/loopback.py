"""Ports on loopback, and whose they are.

Every user of the machine can listen on a port that is free, for example while a server that has ended is started again.
So the system is asked about each connection before anything is sent through it.
"""

import asyncio
import contextlib
import ipaddress
import os
import re
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Mapping

from inference.errors import LaunchError, ServerUnreachableError

ADDRESS = "127.0.0.1"
UNKNOWN_USER = "this system does not say whose it is; --insecure sends text there all the same"

End = tuple[str, int]  # of a connection: its IP address and port
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_PART_BYTES = 2**16
_HOST = re.compile(r"(\[[^]]+\]|[^][:@%]+)(:\d*)?")
# Linux's uapi/linux/netlink.h, sock_diag.h and inet_diag.h
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _NUM_HEADER_BYTES = 4, 20, 1, 16
_ANY_STATE, _NO_COOKIE = 0xFFFFFFFF, -1
_USER_AT = _NUM_HEADER_BYTES + 64  # inet_diag_msg.idiag_uid, and then idiag_inode


def listen(port: int, address: str = ADDRESS) -> socket.socket:
    """Returns a socket that listens on the port, or on a free one for 0. Nobody else can, until it is closed.

    Raises LaunchError.
    """
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, port), family=family)
    except OSError as error:
        reason = f"port {port} on {address} cannot be used: {_describe(error)}"
        raise LaunchError(f"{reason}; choose another, or 0 for any free one") from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections inherit this
    return listener


async def connect(host: str, port: int) -> Streams:
    """Returns a connection to a server of this user or of root, at any of the host's addresses.

    Raises ServerUnreachableError, which says of each address why it is not used.
    """
    problems = []
    for found in await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address = str(found[4][0])
        try:
            if not is_loopback(address):
                raise OSError(f"{address} is not this machine")
            streams = await asyncio.open_connection(address, port)
            if not (problem := _find_problem(address, port, streams[1].get_extra_info("sockname")[:2])):
                return streams
            streams[1].close()
        except OSError as error:
            problem = _describe(error)
        problems.append(problem)
    raise ServerUnreachableError("; ".join(problems))


async def pass_on(client: Streams, reach: Callable[[], Awaitable[Streams]]) -> None:
    """Passes bytes between a client and the server that `reach` connects to, until one of them closes.

    Raises what `reach` raises. A cancel ends it without an error, because asyncio would log one of a stream's handler.
    """
    with contextlib.suppress(asyncio.CancelledError), contextlib.closing(client[1]):
        server = await reach()
        with contextlib.closing(server[1]):
            copies = [asyncio.ensure_future(_copy(*pair)) for pair in ((client[0], server[1]), (server[0], client[1]))]
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)


def query_users(address: str, port: int, client: End | None = None) -> set[int]:
    """Returns whose sockets are at the address: the one that listens, and the other end of the client's connection.

    It is empty where the system does not say it.
    """
    listening = ("::", 0)
    found = [_find_socket(address, port, each) for each in (listening, client or listening)]
    return {each[0] for each in found if each is not None}


def is_held(client: End, server: End) -> bool:
    """Returns whether a process of this machine still has the client's end of a connection to this server.

    A client that has closed only its sending side has it, and waits. False where the system does not say it.
    """
    found = _find_socket(*client, server)
    return found is not None and found[1] != 0


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
        return _parse(host).is_loopback
    return host == "localhost"


def _find_problem(address: str, port: int, client: End) -> str | None:
    """Returns why nothing is sent to the address; None if its sockets are this user's, or root's, who can read all."""
    users = query_users(address, port, client)
    if users - {0, os.geteuid()}:  # type: ignore[attr-defined,unused-ignore]
        return f"port {port} of {address} belongs to another user, so no text is sent there"
    return None if users else f"port {port} of {address}: {UNKNOWN_USER}"


def _find_socket(address: str, port: int, client: End) -> tuple[int, int] | None:
    """Returns whose a TCP socket is, as Linux says (linux/inet_diag.h), and its inode, which is 0 once it is closed.

    None if it says nothing.
    """
    if sys.platform != "linux":
        return None
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    with contextlib.suppress(OSError, ValueError), kernel:  # ValueError: a name, which is no address
        ends = [_parse(each).packed for each in (address, client[0])]
        family = socket.AF_INET if len(ends[0]) == 4 else socket.AF_INET6
        request = struct.pack("=BBxxI", family, socket.IPPROTO_TCP, _ANY_STATE)
        request += struct.pack("!HH16s16s", port, client[1], *ends) + struct.pack("=Iq", 0, _NO_COOKIE)
        header = struct.pack("=IHHII", _NUM_HEADER_BYTES + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
        kernel.send(header + request)
        reply = kernel.recv(_PART_BYTES)
        if struct.unpack_from("=IH", reply)[1] == _SOCK_DIAG_BY_FAMILY:
            user, inode = struct.unpack_from("=II", reply, _USER_AT)
            return user, inode
    return None


def _describe(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)  # below 0: of a name


def _parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Returns the address that is used: an IPv4 address in the form of IPv6 is the IPv4 address."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # one side has gone
        while part := await source.read(_PART_BYTES):
            target.write(part)
            await target.drain()
