import asyncio
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.errors import LaunchError
from inference.serving.launcher import Endpoint
from inference.serving.shared_server import Registration, ServerEntry, lease_server

_ENDPOINT = Endpoint(1, 2, 3)
_NO_COMMAND = ["false"]


@pytest.fixture
def entry(tmp_path: Path) -> ServerEntry:
    return ServerEntry.create(tmp_path, EngineConfig(Path("/models/a")))


async def _register(entry: ServerEntry) -> Registration:
    registration = await entry.register()
    assert registration is not None
    return registration


async def test_a_published_server_is_found(entry: ServerEntry) -> None:
    registration = await _register(entry)
    registration.publish(_ENDPOINT)
    assert entry.find() == _ENDPOINT
    registration.close()


async def test_a_server_that_has_gone_is_not_found(entry: ServerEntry) -> None:
    registration = await _register(entry)
    registration.publish(_ENDPOINT)
    registration.close()
    assert entry.find() is None


async def test_what_a_killed_server_has_left_is_not_believed(entry: ServerEntry) -> None:
    (entry.folder / "server.json").write_text('{"http_port": 1, "grpc_port": 2, "metrics_port": 3}')
    assert entry.find() is None


async def test_only_one_process_serves_a_model(entry: ServerEntry) -> None:
    registration = await _register(entry)
    assert await entry.register() is None
    registration.close()


@pytest.mark.parametrize(
    "other", [EngineConfig(Path("/models/b")), EngineConfig(Path("/other/a")), EngineConfig(Path("/models/a"), "cuda")]
)
def test_another_model_or_device_is_another_entry(entry: ServerEntry, other: EngineConfig) -> None:
    assert ServerEntry.create(entry.folder.parent, other) != entry


def test_an_entry_is_open_to_its_owner_only(entry: ServerEntry) -> None:
    assert entry.folder.stat().st_mode & 0o777 == 0o700


async def test_clients_share_the_server_that_runs(entry: ServerEntry) -> None:
    registration = await _register(entry)
    registration.publish(_ENDPOINT)
    leases = [await lease_server(entry, _NO_COMMAND, lambda _: None) for _ in range(2)]
    assert [lease.endpoint for lease in leases] == [_ENDPOINT, _ENDPOINT]
    for lease in leases:
        lease.close()
    registration.close()


async def test_a_client_waits_for_a_server_that_is_starting(entry: ServerEntry) -> None:
    registration = await _register(entry)
    waiting = asyncio.create_task(lease_server(entry, _NO_COMMAND, lambda _: None))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    registration.publish(_ENDPOINT)
    (await waiting).close()
    registration.close()


async def test_a_server_is_withdrawn_when_its_last_client_has_gone(entry: ServerEntry) -> None:
    registration = await _register(entry)
    registration.publish(_ENDPOINT)
    lease = await lease_server(entry, _NO_COMMAND, lambda _: None)
    idle = asyncio.create_task(registration.withdraw_when_idle(0.1))
    await asyncio.sleep(0.5)
    assert not idle.done()
    lease.close()
    await idle
    assert entry.find() is None
    registration.close()


async def test_a_server_that_ends_while_starting_says_why(entry: ServerEntry) -> None:
    with pytest.raises(LaunchError, match="no room"):
        await lease_server(entry, ["sh", "-c", "echo no room; exit 1"], lambda _: None)
