import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from inference.errors import LaunchError, ServerUnreachableError
from inference.serving.loopback import ADDRESS, connect, find_stranger, listen, query_users
from tests.support.other_user import NOBODY, as_nobody, can_other_user_listen, needs_other_user

_HOST = "127.0.0.1:8000"
_LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


@contextlib.contextmanager
def _serve(address: str, port: int = 0, is_stranger: bool = False) -> Iterator[tuple[socket.socket, int]]:
    """A socket of this or of another user that listens at the address, and its port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with as_nobody() if is_stranger else contextlib.nullcontext():
        listener = socket.socket(family)
    with listener:
        if ":" in address:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address == "::1")
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen()
        yield listener, listener.getsockname()[1]


def test_a_port_in_use_is_named() -> None:
    with _serve("0.0.0.0") as (_, port):
        used = "Address already in use"
        for name, why in ((ADDRESS, used), ("localhost", used), ("[::1]", ".*not known")):
            with pytest.raises(LaunchError, match=f"^port {port} on {re.escape(name)} cannot be used: {why}"):
                listen(port, name)


@needs_other_user
def test_nobody_else_can_listen_on_a_port_that_is_held() -> None:
    with listen(0) as holder:
        port = holder.getsockname()[1]
        assert not can_other_user_listen(port)
    assert can_other_user_listen(port)  # as the test itself would have found


@pytest.mark.parametrize(
    ("listening", "asked", "is_seen"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "::1", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "::1", False),
        ("::", "127.0.0.1", True),
        ("::", "::1", True),
        ("::1", "::1", True),
        ("::1", "127.0.0.1", False),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
    ],
)
def test_the_user_of_whatever_would_answer_is_found(listening: str, asked: str, is_seen: bool) -> None:
    with _serve(listening) as (_, port):
        assert query_users(asked, port) == ({os.getuid()} if is_seen else set())


@needs_other_user
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::"])
async def test_nothing_is_sent_to_another_users_server(address: str) -> None:
    with _serve(address, is_stranger=True) as (stranger, port):
        with pytest.raises(ServerUnreachableError, match=f"port {port} of {ADDRESS} belongs to another user, so no"):
            await connect(ADDRESS, port)
        received, _ = stranger.accept()
        with received:
            received.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(received, 1) == b""


@needs_other_user
def test_a_connection_is_that_of_the_user_who_has_accepted_it() -> None:
    with _serve(ADDRESS, is_stranger=True) as (stranger, port):
        client = socket.create_connection((ADDRESS, port))
        assert NOBODY in query_users(ADDRESS, port, client.getsockname())  # it is not accepted yet
        with as_nobody():
            kept, _ = stranger.accept()
    with client, kept, _serve(ADDRESS, port):
        assert query_users(ADDRESS, port, client.getsockname()) == {0, NOBODY}
        assert query_users(ADDRESS, port) == {0}


@needs_other_user
@pytest.mark.parametrize(("ours", "theirs"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
async def test_all_addresses_of_a_name_are_tried(ours: str, theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _resolve_to(monkeypatch, theirs, ours)
    with _serve(ours) as (_, port), _serve(theirs, port, is_stranger=True):
        _, writer = await connect("localhost", port)
    assert writer.get_extra_info("peername")[0] == ours
    writer.close()


async def test_a_name_that_means_another_machine_by_now_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolve_to(monkeypatch, "192.0.2.7")
    with pytest.raises(ServerUnreachableError, match=r"192\.0\.2\.7 is not this machine"):
        await connect("here", 8001)


def _resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    resolve = socket.getaddrinfo

    def getaddrinfo(host: str, *others: Any, **more: Any) -> Any:
        return found if host in ("localhost", "here") else resolve(host, *others, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


async def test_nothing_is_sent_where_the_system_does_not_say_whose_a_port_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "AF_NETLINK", -1)
    with (
        _serve(ADDRESS) as (_, port),
        pytest.raises(ServerUnreachableError, match="this system does not say whose it is"),
    ):
        await connect(ADDRESS, port)


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({"Host": _HOST}, False),
        ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, False),
        ({"Host": _HOST, "Sec-Fetch-Site": "none"}, False),
        ({"Host": _HOST, **_LINK}, False),
        ({"Host": "LOCALHOST:9000", "Origin": "http://localhost:9000"}, False),
        ({"Host": "localhost"}, False),
        ({"Host": "LocalHost.:80"}, False),
        ({"Host": "127.0.0.1.:8000"}, False),
        ({"Host": "127.8.9.10"}, False),
        ({"Host": "[::1]:8000", "Origin": "http://[::1]:8000"}, False),
        ({"Host": "[::ffff:127.0.0.1]"}, False),
        ({"Host": "localhost:"}, False),
        ({"Host": "127.0.0.1%evil.example"}, True),
        ({}, True),
        ({"Host": "localhost.evil.example:8000"}, True),
        ({"Host": "127.0.0.1.evil.example"}, True),
        ({"Host": "localhost@evil.example"}, True),
        ({"Host": "0.0.0.0:8000"}, True),
        ({"Host": "192.168.1.2"}, True),
        ({"Host": "::1"}, True),
        ({"Host": "[localhost]evil.example"}, True),
        ({"Host": "evil.example:8000"}, True),
        ({"Host": "evil.example:8000", "Origin": "http://evil.example:8000"}, True),
        ({"Host": _HOST, "Origin": "http://localhost:8000"}, True),
        ({"Host": _HOST, "Origin": "null"}, True),
        ({"Host": _HOST, "Origin": "https://127.0.0.1:8000", **_LINK}, True),
        ({"Host": _HOST, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, True),
        ({"Host": _HOST, "Sec-Fetch-Site": "same-site"}, True),
    ],
)
def test_web_pages_of_other_sites_are_strangers(headers: dict[str, str], is_refused: bool) -> None:
    assert (find_stranger(headers) is not None) == is_refused
