import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inference.client.client import Client
from inference.client.local_host import HostPlace, ensure_served
from inference.config import EngineConfig
from inference.errors import LaunchError, ModelError
from inference.protocol.completion import CompletionRequest
from midtoken.installed import find_model_repository
from tests.support.servers import Served, end_servers, find_processes, make_scripted, wait_until


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A scripted model, whose hosts are ended after the test."""
    yield make_scripted(tmp_path)
    end_servers(tmp_path)


@pytest.fixture
def config(served: Served) -> EngineConfig:
    return EngineConfig(served.model_dir)


@pytest.fixture
def place(tmp_path: Path, config: EngineConfig) -> HostPlace:
    return HostPlace.find(tmp_path / "run", config)


@pytest.fixture
def start(served: Served, config: EngineConfig, place: HostPlace) -> Callable[..., "asyncio.Future[None]"]:
    def ensure(idle_s: float = 60.0) -> "asyncio.Future[None]":
        return asyncio.ensure_future(ensure_served(place, config, served.repository, idle_s, print))

    return ensure


async def _complete(place: HostPlace) -> str:
    async with Client(place.url) as client:
        return "".join([chunk.text async for chunk in client.stream(CompletionRequest("abc"))])


def _find_hosts(place: HostPlace) -> list[int]:
    return [pid for pid, command in find_processes(place.socket.parent).items() if "inference.hosting.host" in command]


@pytest.mark.parametrize(
    "change", [{"model_dir": Path("/other")}, {"device": "cuda"}, {"engine_key": "k"}, {"max_context_tokens": 2048}]
)
def test_another_configuration_has_another_place(
    change: dict[str, object], config: EngineConfig, place: HostPlace
) -> None:
    assert HostPlace.find(place.socket.parent, config) == place
    assert HostPlace.find(place.socket.parent, replace(config, **change)) != place  # type: ignore[arg-type]


@pytest.mark.e2e
async def test_two_clients_that_start_a_host_at_once_share_one(
    start: Callable[[], "asyncio.Future[None]"], place: HostPlace
) -> None:
    await asyncio.gather(start(), start())
    assert (await _complete(place), place.socket.parent.stat().st_mode & 0o777) == ("cba", 0o700)
    wait_until(lambda: len(_find_hosts(place)) == 1)  # the second one ends by itself


@pytest.mark.e2e
async def test_after_a_kill_the_stale_socket_is_no_host_and_the_next_client_starts_one(
    start: Callable[[], "asyncio.Future[None]"], place: HostPlace
) -> None:
    await start()
    [pid] = _find_hosts(place)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not place.is_served())
    assert place.socket.is_socket()
    await start()
    assert await _complete(place) == "cba"


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_another_user_cannot_connect(served: Served, config: EngineConfig) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        place = HostPlace.find(Path(folder, "run"), config)
        await ensure_served(place, config, served.repository, 60, print)
        assert place.is_served()
        os.seteuid(65534)
        try:
            with socket.socket(socket.AF_UNIX) as client, pytest.raises(PermissionError):
                client.connect(str(place.socket))
        finally:
            os.seteuid(0)
        end_servers(Path(folder))


@pytest.mark.e2e
async def test_a_host_ends_when_no_stream_has_been_open_for_its_idle_time(
    start: Callable[..., "asyncio.Future[None]"], place: HostPlace
) -> None:
    await start(idle_s=1.0)
    async with Client(place.url) as client:
        client.hold()
        await asyncio.sleep(2.0)
        assert place.is_served()
    wait_until(lambda: not _find_hosts(place))
    assert not place.socket.exists()


@pytest.mark.e2e
async def test_what_the_host_cannot_use_is_refused_as_it_is_in_one_process(place: HostPlace, tmp_path: Path) -> None:
    config = EngineConfig(tmp_path / "none")
    with pytest.raises(ModelError, match=f"{config.model_dir}"):
        await ensure_served(place, config, find_model_repository(), 60, print)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("echo no room; exit 1", "^the server ended while starting: no room. Its log is /"),
        ("exit 1", "^the server ended while starting, and its log is empty, as on a full disk"),
        ("echo loading; echo 'midtoken: no room'; echo 'try later'; exit 1", "^no room try later$"),
        (None, r"cannot run /.* with the log /.*: No such file"),
    ],
)
async def test_a_failed_start_says_why(
    program: str | None,
    message: str,
    start: Callable[[], "asyncio.Future[None]"],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if program is not None:
        (tmp_path / "python").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(LaunchError, match=message):
        await start()
