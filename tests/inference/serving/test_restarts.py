import asyncio

import pytest

from inference.errors import LaunchError
from inference.serving.launcher import RestartPolicy, keep_running
from tests.support.fakes import FakeServer

_POLICY = RestartPolicy(probe_interval_s=0.001, first_backoff_s=0.001, max_failed_starts=3)


class _Starts:
    """A `restart` function with given results. An error among them is a start that fails."""

    def __init__(self, *outcomes: FakeServer | LaunchError) -> None:
        self._outcomes = iter(outcomes)

    async def __call__(self) -> FakeServer:
        outcome = next(self._outcomes)
        if isinstance(outcome, LaunchError):
            raise outcome
        return outcome


async def _run_until(condition: asyncio.Event, *servers: FakeServer | LaunchError) -> list[str]:
    """Watches the first server, restarts with the others, and stops at the event. Returns the reported lines."""
    first, *others = servers
    assert isinstance(first, FakeServer)
    said: list[str] = []
    task = asyncio.create_task(keep_running(first, _Starts(*others), said.append, _POLICY))
    await condition.wait()
    task.cancel()
    await asyncio.wait([task])
    return said


async def test_a_server_that_stops_answering_is_replaced() -> None:
    dead, fresh = FakeServer(num_probes=2), FakeServer()
    said = await _run_until(fresh.probed, dead, fresh)
    assert said == ["the server has failed: no completion; starting it again"]


async def test_a_failed_server_is_not_drained() -> None:
    dead, fresh = FakeServer(num_probes=0), FakeServer()
    await _run_until(fresh.probed, dead, fresh)
    assert dead.stops == [False]


async def test_an_ended_server_is_replaced_at_once() -> None:
    ended, fresh = FakeServer(), FakeServer()
    ended.ended.set()
    assert await _run_until(fresh.probed, ended, fresh) == ["the server has ended; starting it again"]


async def test_cancelling_drains_the_server() -> None:
    server = FakeServer()
    await _run_until(server.probed, server)
    assert server.stops == [True]


async def test_failed_starts_are_retried() -> None:
    dead, fresh = FakeServer(num_probes=0), FakeServer()
    said = await _run_until(fresh.probed, dead, LaunchError("one"), LaunchError("two"), fresh)
    assert said[1:] == ["one", "two"]


async def test_after_many_failed_starts_the_last_error_is_raised() -> None:
    failures = [LaunchError(text) for text in ("one", "two", "three")]
    with pytest.raises(LaunchError, match="three"):
        await keep_running(FakeServer(num_probes=0), _Starts(*failures), lambda _: None, _POLICY)


async def test_no_backoff_follows_the_last_attempt() -> None:
    once = RestartPolicy(probe_interval_s=0.001, first_backoff_s=3600.0, max_failed_starts=1)
    with pytest.raises(LaunchError, match="one"):
        async with asyncio.timeout(30):
            await keep_running(FakeServer(num_probes=0), _Starts(LaunchError("one")), lambda _: None, once)
