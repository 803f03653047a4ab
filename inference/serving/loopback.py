"""Ports on loopback, and whose they are.

Every user of the machine can listen on a port that is free, for example while a server that has ended is started again.
So the system is asked about each connection before anything is sent through it.
"""

import asyncio
import contextlib
import ipaddress
import os
import pwd
import re
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from inference.errors import LaunchError, ServerUnreachableError

ADDRESS = "127.0.0.1"
SOCKET_TABLE = Path("/proc/net/tcp")  # only Linux has it, with one for IPv6
UNKNOWN_USER = "this system does not say whose it is; --insecure sends text there all the same"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_PART_BYTES = 2**16
_LISTENS = "0A"  # TCP_LISTEN in the kernel's net/tcp_states.h


def listen(port: int) -> socket.socket:
    """Returns a socket that listens on the port, or on a free one for 0. Nobody else can, until it is closed.

    Raises LaunchError, which says whose program has the port.
    """
    try:
        listener = socket.create_server((ADDRESS, port))
    except OSError as error:
        users = find_users(ADDRESS, port)
        whose = f"; it belongs to {_name(users)}" if users else ""
        raise LaunchError(f"port {port} on {ADDRESS} cannot be used: {_describe(error)}{whose}") from None
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
            if not (problem := await asyncio.to_thread(_find_problem, address, port)):
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


def find_users(address: str, port: int) -> set[int]:
    """Returns the users who have a socket at the address: those who listen there, and those who have connections."""
    tables = "".join(table.read_text() for table in (SOCKET_TABLE, SOCKET_TABLE.with_name("tcp6")))
    sockets = re.findall(rf"^ *\d+: (\w+):{port:04X} \S+ (\w+) \S+ \S+ \S+ +(\d+)", tables, re.MULTILINE)
    packed = _parse(address).packed
    mapped = bytes(10) + b"\xff\xff" + packed  # an IPv4 address as a socket of IPv6 has it
    here = {_show(packed), _show(mapped)}
    connected = {int(user) for place, state, user in sockets if place in here and state != _LISTENS}
    for places in (here, {_show(bytes(len(packed)))}, {_show(bytes(16))}):  # as the kernel prefers them
        if listening := {int(user) for place, state, user in sockets if place in places and state == _LISTENS}:
            return connected | listening
    return connected


def find_stranger(headers: Mapping[str, str], port: int) -> str | None:
    """Returns why an HTTP request to the port is refused: a web page of another site sent it. None if it did not.

    A page whose name was made to point at loopback (DNS rebinding) sends its own name as `Host`. Browsers send `Origin`
    with what can change something, and say with `Sec-Fetch-Site` where other requests come from; links may.
    """
    host = headers.get("Host")
    if host not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
        return f"This port answers only at {ADDRESS}:{port} and localhost:{port}."
    is_link = headers.get("Sec-Fetch-Mode") == "navigate"
    is_cross_site = headers.get("Sec-Fetch-Site") in ("cross-site", "same-site") and not is_link
    if is_cross_site or headers.get("Origin") not in (None, f"http://{host}"):
        return "This port answers programs and its own pages, not another site."
    return None


def is_loopback(address: str) -> bool:
    """Returns whether the IP address is one of this machine's own, which no other machine can reach."""
    return _parse(address).is_loopback


def _find_problem(address: str, port: int) -> str | None:
    """Returns why nothing is sent to the address; None if its sockets are this user's, or root's, who can read all."""
    users = find_users(address, port)
    if strangers := users - {0, os.geteuid()}:
        return f"port {port} of {address} belongs to {_name(strangers)}, so no text is sent there"
    return None if users else f"port {port} of {address}: {UNKNOWN_USER}"


def _describe(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def _name(users: set[int]) -> str:
    names = {each.pw_uid: each.pw_name for each in pwd.getpwall()}
    return " and ".join(f"the user {names.get(user, user)}" for user in sorted(users))


def _parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Returns the address that is used: an IPv4 address in the form of IPv6 is the IPv4 address."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _show(packed: bytes) -> str:
    """The address as the kernel shows it: each four bytes as a number."""
    return "".join(f"{int.from_bytes(packed[i : i + 4], sys.byteorder):08X}" for i in range(0, len(packed), 4))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # one side has gone
        while part := await source.read(_PART_BYTES):
            target.write(part)
            await target.drain()
