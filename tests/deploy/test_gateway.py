"""The configurations in deploy/ in the real HAProxy: what is let through, where it goes, and what nobody is told."""

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # grpc has no types

import aiohttp
import grpc
import pytest
import trustme
from aiohttp import web

from inference.platforms import ADDRESS, IMPORT_ROOT
from tests.support.servers import pick_free_endpoint, pick_free_ports, wait_until

_DEPLOY, _HAPROXY = IMPORT_ROOT / "deploy", IMPORT_ROOT / "build/haproxy"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not _HAPROXY.exists(), reason="there is no HAProxy here: make tools"),
]

_KEYS = ("Bearer hunter2", "Bearer other", "Bearer large", "Bearer chunks")
_KEY = _KEYS[0]
_TEXT = "def main(): return secret"
_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_LINES = """
backend grpc from servers
{grpc}
backend http from servers
{http}
"""


def _write_secrets(folder: Path) -> dict[str, str]:
    """Writes a certificate for loopback, its authority and the keys. Returns the settings that name them."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert(ADDRESS, "localhost").private_key_and_cert_chain_pem.write_to_path(folder / "gateway.pem")
    (folder / "keys").write_text("\n".join(_KEYS))
    return {"MIDTOKEN_GATEWAY_TLS": str(folder / "gateway.pem"), "MIDTOKEN_GATEWAY_KEYS": str(folder / "keys")}


@dataclass(frozen=True)
class Gateway:
    """A running HAProxy with deploy/haproxy.cfg."""

    folder: Path
    grpc_port: int
    http_port: int
    operator_port: int

    @property
    def log(self) -> str:
        return (self.folder / "haproxy.log").read_text()

    def read(self, path: str) -> str:
        """What it answers its operator. Raises urllib.error.HTTPError for another status than 200."""
        with urllib.request.urlopen(f"http://{ADDRESS}:{self.operator_port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def count_used(self, backend: str) -> int:
        """How many servers of a backend are in use."""
        start = f'haproxy_server_status{{proxy="{backend}"'
        lines = [line for line in self.read("/metrics").splitlines() if line.startswith(start)]
        return sum('state="UP"' in line and line.endswith(" 1") for line in lines)

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.read("/metrics"))
        return False


@contextlib.contextmanager
def _run_gateway(folder: Path, servers: str, settings: Mapping[str, str]) -> Iterator[Gateway]:
    """Runs deploy/haproxy.cfg inside the block, with a second file that has this text."""
    (folder / "servers.cfg").write_text(servers)
    gateway = Gateway(folder, *pick_free_ports(3))
    ports = {"GRPC": gateway.grpc_port, "HTTP": gateway.http_port, "OPERATOR": gateway.operator_port}
    places = {f"MIDTOKEN_GATEWAY_{name}": f"{ADDRESS}:{port}" for name, port in ports.items()}
    command: list[str | Path] = [_HAPROXY, "-f", _DEPLOY / "haproxy.cfg", "-f", folder / "servers.cfg"]
    environment = {**os.environ, **places, **_write_secrets(folder), **settings}
    with (
        (folder / "haproxy.log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            wait_until(lambda: gateway.answers() or process.poll() is not None)
            assert process.poll() is None, gateway.log
            yield gateway
        finally:
            process.kill()


@dataclass
class FakeServer:
    """Answers gRPC and HTTP with the headers that it was sent."""

    is_ready: bool = True
    wait_s: float = 0.0
    headers: list[dict[str, str]] = field(default_factory=list)
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self) -> None:
        self.ports = pick_free_endpoint()
        app = web.Application(client_max_size=2**25)
        app.router.add_get("/ready", self._tell)
        app.router.add_post("/{rest:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, ADDRESS, self.ports.http_port).start()
        self.resources.push_async_callback(runner.cleanup)
        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(self._stream)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(*_METHOD[1:].split("/")[:1], {"ModelStreamInfer": handler})]
        )
        server.add_insecure_port(f"{ADDRESS}:{self.ports.grpc_port}")
        await server.start()
        self.resources.push_async_callback(server.stop, 0)

    async def _answer(self, request: web.Request) -> web.Response:
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return web.Response(text=await request.text())

    async def _tell(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.is_ready else 503)

    async def _stream(self, messages: Any, context: Any) -> AsyncIterator[bytes]:
        self.headers.append(dict(context.invocation_metadata()))
        async for message in messages:
            yield message
            await asyncio.sleep(self.wait_s)
            yield message


@dataclass(frozen=True)
class Team:
    """A gateway in front of two servers."""

    gateway: Gateway
    servers: list[FakeServer]

    async def stream(self, session: str = "", key: str = _KEY, text: str = _TEXT) -> list[bytes]:
        credentials = grpc.ssl_channel_credentials((self.gateway.folder / "ca.pem").read_bytes())
        metadata = [("authorization", key), ("x-session-id", session)]
        async with grpc.aio.secure_channel(f"localhost:{self.gateway.grpc_port}", credentials) as channel:
            call = channel.stream_stream(_METHOD)(metadata=[each for each in metadata if each[1]])
            # Of a call that is refused before its message is sent, gRPC tells no reason: clients ask again without one.
            await (call.write(text.encode()) if text else call.done_writing())
            parts = [await call.read(), await call.read()]  # as midtoken's clients, which may cancel meanwhile
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            return parts

    async def post(self, data: Any = _TEXT, **headers: str) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.gateway.folder / "ca.pem"))
        url = f"https://localhost:{self.gateway.http_port}/v1/completions?{_TEXT.split()[0]}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=data, headers=headers, ssl=context) as answer,
        ):
            return answer.status, await answer.text()

    async def wait_for_servers(self, number: int) -> None:
        """Returns when so many are in use."""
        async with asyncio.timeout(30):
            while self.gateway.count_used("grpc") != number:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def _run_team(folder: Path, **settings: str) -> AsyncIterator[Team]:
    servers = [FakeServer(), FakeServer()]
    async with AsyncExitStack() as stack:
        for server in servers:
            await server.start()
            stack.push_async_callback(server.resources.aclose)
        line = "    server s{number} {address}:{port} {rest} check port {checked}"
        lines = {
            name: "\n".join(
                line.format(
                    number=number, address=ADDRESS, port=getattr(each.ports, f"{name}_port"), rest=rest,
                    checked=each.ports.http_port,
                )
                for number, each in enumerate(servers)
            )
            for name, rest in (("grpc", "proto h2 check-proto h1"), ("http", ""))
        }  # fmt: skip
        gateway = await asyncio.to_thread(stack.enter_context, _run_gateway(folder, _LINES.format(**lines), settings))
        team = Team(gateway, servers)
        await team.wait_for_servers(2)
        yield team


@pytest.mark.parametrize("names", [("haproxy.cfg", "servers.cfg"), ("engines.cfg",)])
def test_haproxy_finds_its_configuration_right(names: tuple[str, ...], tmp_path: Path) -> None:
    command = [_HAPROXY, "-c", "-q", *(part for name in names for part in ("-f", _DEPLOY / name))]
    environment = {**os.environ, **_write_secrets(tmp_path)}
    checked = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


async def test_a_document_stays_with_one_server_which_gets_the_headers_as_they_were_sent(tmp_path: Path) -> None:
    async with _run_team(tmp_path) as team:
        homes = dict[str, set[int]]()
        for session in [*(f"document {number}" for number in range(12)), ""] * 2:
            assert await team.stream(session) == [_TEXT.encode()] * 2
            told = [(number, server.headers.pop()) for number, server in enumerate(team.servers) if server.headers]
            [(number, headers)] = told
            assert headers["authorization"] == _KEY
            homes.setdefault(session, set()).add(number)
            assert headers["x-session-id"] == session or (not session and "hunter" not in headers["x-session-id"])
        assert {len(home) for home in homes.values()} == {1}
        assert set.union(*homes.values()) == {0, 1}
        status, text = await team.post(authorization=_KEY)
        [headers] = [each for server in team.servers for each in server.headers]
        assert (status, text, headers["authorization"], headers["host"]) == (200, _TEXT, _KEY, "127.0.0.1")
        assert len(headers["x-tenant"]) == 64
        lines = [json.loads(line) for line in team.gateway.log.splitlines() if line.startswith("{")]
        assert {line["status"] for line in lines} == {200}
        assert not any(word in team.gateway.log for word in ("hunter2", "main", "completions", "document 1"))


async def test_what_is_not_for_the_servers_is_refused_with_a_reason(tmp_path: Path) -> None:
    async def find_code(team: Team, key: str) -> tuple[str, str]:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await team.stream(key=key, text="")
        return refused.value.code().name, refused.value.details()

    async with _run_team(tmp_path, MIDTOKEN_KEY_REQUESTS="4", MIDTOKEN_BODY_BYTES="2000") as team:
        for key in ("", "Bearer hunter3", "hunter2"):
            assert await find_code(team, key) == ("UNAUTHENTICATED", "the key is missing or wrong")
            assert (await team.post(authorization=key))[0] == 401
        assert (await team.post(_TEXT * 100, authorization="Bearer large"))[0] == 413
        assert (await team.post(_send_in_chunks(), authorization="Bearer chunks"))[0] == 411
        for _ in range(4):
            await team.stream()
        assert await find_code(team, _KEY) == ("RESOURCE_EXHAUSTED", "this key sends too much")
        assert (await team.post(authorization=_KEY))[0] == 429
        assert await team.stream(key="Bearer other")
        assert await _speak_http_1(team.gateway) == 426
        assert sum(len(server.headers) for server in team.servers) == 5


async def _send_in_chunks() -> AsyncIterator[bytes]:
    yield b"x"


async def _speak_http_1(gateway: Gateway) -> int:
    context = ssl.create_default_context(cafile=str(gateway.folder / "ca.pem"))
    url = f"https://localhost:{gateway.grpc_port}/"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
        return answer.status


async def test_a_server_that_drains_gets_nothing_new_and_ends_what_it_has_begun(tmp_path: Path) -> None:
    async with _run_team(tmp_path) as team:
        first, second = team.servers
        first.wait_s = second.wait_s = 4.0
        running = [asyncio.create_task(team.stream(str(number))) for number in range(8)]
        while len(first.headers) + len(second.headers) < 8:
            await asyncio.sleep(0.05)
        first.is_ready, first.wait_s, second.wait_s = False, 0.0, 0.0
        await team.wait_for_servers(1)
        assert not any(task.done() for task in running)
        num_before = len(first.headers)
        await asyncio.gather(*(team.stream(str(number)) for number in range(8)))
        assert (len(first.headers), len(second.headers)) == (num_before, 16 - num_before)
        assert all(len(parts) == 2 for parts in await asyncio.gather(*running))


async def test_what_has_not_begun_goes_to_another_server_when_one_is_dead(tmp_path: Path) -> None:
    async with _run_team(tmp_path) as team:
        first, second = team.servers
        await first.resources.aclose()
        assert all([await team.stream(str(number)) for number in range(12)])
        assert {(await team.post(authorization=_KEY, **{"x-session-id": str(number)}))[0] for number in range(12)} == {
            200
        }
        await second.resources.aclose()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await team.stream()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert (await team.post(authorization=_KEY))[0] == 503
        await team.wait_for_servers(0)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            team.gateway.read("/ready")
