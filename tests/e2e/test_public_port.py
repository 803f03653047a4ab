"""The port for clients on other machines, with real servers on both runtimes: TLS, keys, tenants, restarts."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from inference.errors import ServerError, ServerUnreachableError
from inference.protocol.completion import CompletionChunk, CompletionRequest, Extent, FinishReason
from inference.serving.calls import Tls
from inference.serving.client import Client
from tests.support.access import ANN, BOB, write_certificate, write_keys
from tests.support.servers import (
    EMBEDDED,
    TRITON,
    RunningServer,
    Served,
    find_real,
    make_scripted,
    run_server,
    wait_until,
)

pytestmark = pytest.mark.e2e
_TEXT = "class Node:\n    def __init__(self, value):\n        self.value = value\n\n\ndef make():\n    return Nod"


@dataclass(frozen=True, slots=True)
class _Team:
    """A server for a team, and where its files are."""

    server: RunningServer
    folder: Path
    authority: trustme.CA

    @property
    def url(self) -> str:
        return self.server.public_url

    @asynccontextmanager
    async def connect(self, key: str) -> AsyncIterator[Client]:
        async with Client(self.url, Tls(self.authority.cert_pem.bytes()), key=key) as client:
            yield client


def _run(folder: Path, served: Served, runtime: str, *arguments: str) -> Iterator[_Team]:
    authority = trustme.CA()
    files = (f"--keys={write_keys(folder)}", f"--tls={write_certificate(folder, authority)}")
    with run_server(served, folder / "state", "--listen=0", *files, *arguments, runtime=runtime) as server:
        yield _Team(server, folder, authority)


@pytest.fixture(params=[TRITON, EMBEDDED])
def team(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Team]:
    """One with scripted models, on each runtime."""
    yield from _run(tmp_path, make_scripted(tmp_path), request.param, "--probe-interval=0.5")


@pytest.fixture(params=[TRITON, EMBEDDED])
def real_team(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Team]:
    """One with the default model, on each runtime."""
    yield from _run(tmp_path, find_real(), request.param)


async def _complete(client: Client, request: CompletionRequest) -> list[CompletionChunk]:
    return [chunk async for chunk in client.stream(request)]


def _make_slow(name: str, document: str = "") -> CompletionRequest:
    return CompletionRequest("slow", suffix=name, document=document, max_tokens=1000, extent=Extent.BLOCK)


async def test_keys_and_cancels_work_through_the_port(team: _Team) -> None:
    async with team.connect(ANN) as ann, team.connect(BOB) as bob, team.connect(ANN[:-1]) as stranger:
        assert "".join(chunk.text for chunk in await _complete(ann, CompletionRequest("abc"))) == "cba"
        with pytest.raises(ServerError, match="the key is missing or wrong"):
            await stranger.read_description()
        async with aclosing(bob.stream(_make_slow("of bob"))) as chunks:
            await anext(chunks)
        await asyncio.to_thread(wait_until, lambda: "cancelled of bob" in team.server.events)
        write_keys(team.folder, f"ann {ANN}\n")
        with pytest.raises(ServerError, match="the key is missing or wrong"):
            await bob.read_description()
        write_keys(team.folder, "ann\n")
        assert (await ann.read_description()).problem == ""
    assert "line 1: it needs a user and a key" in team.server.log
    assert not any(key in team.server.log for key in (ANN, BOB))


async def test_users_share_no_text_and_end_none_of_each_others_requests(real_team: _Team) -> None:
    request = CompletionRequest(_TEXT, document="d", tenant="ann", max_tokens=4)
    async with real_team.connect(ANN) as ann, real_team.connect(BOB) as bob:
        first, again, other = [await _complete(client, request) for client in (ann, ann, bob)]
        read = [chunks[-1].stats.num_read_tokens for chunks in (first, again, other) if chunks[-1].stats]
        assert read[1] < read[0] == read[2]
        long = CompletionRequest(_TEXT, document="d", max_tokens=200, extent=Extent.UNLIMITED)
        both = await asyncio.gather(*(_complete(client, long) for client in (ann, bob)))
        assert [chunks[-1].finish_reason is FinishReason.SUPERSEDED for chunks in both] == [False, False]


async def test_a_server_that_ends_behind_the_port_is_back_without_a_new_client(tmp_path: Path) -> None:
    for team in _run(tmp_path, make_scripted(tmp_path), TRITON, "--probe-interval=0.5"):
        async with team.connect(ANN) as ann, asyncio.timeout(60):
            running = ann.stream(_make_slow("lost"))
            await anext(running)
            commands = team.server.find_processes()
            (triton,) = (pid for pid, command in commands.items() if command.split()[0].endswith("bin/tritonserver"))
            os.kill(triton, signal.SIGKILL)
            with pytest.raises(ServerUnreachableError, match="the server has ended, or is being started again"):
                async for _ in running:
                    pass
            while True:
                try:
                    assert await _complete(ann, CompletionRequest("abc"))
                    break
                except ServerUnreachableError:
                    await asyncio.sleep(0.1)


async def test_a_server_that_is_told_to_end_lets_streams_end(team: _Team) -> None:
    request = CompletionRequest("slow", max_tokens=1000)
    async with team.connect(ANN) as ann:
        running = ann.stream(request)
        for _ in range(420):  # of 500; the others take 1.6 s
            await anext(running)
        team.server.process.send_signal(signal.SIGTERM)
        chunks = [chunk async for chunk in running]
    assert (len(chunks), chunks[-1].finish_reason) == (81, FinishReason.END)
    assert team.server.process.wait(60) == 0
