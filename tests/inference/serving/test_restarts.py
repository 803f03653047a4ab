import asyncio
from contextlib import suppress

import pytest

from inference.errors import LaunchError
from inference.serving.launcher import RestartPolicy, keep_running
from tests.support.fakes import FakeServer

_POLICY = RestartPolicy(probe_interval_s=0.001, first_backoff_s=0.001, max_failed_starts=3)


async def _keep_running(*servers: FakeServer | LaunchError, policy: RestartPolicy = _POLICY) -> list[str]:
    """Watches the first server and restarts with the others, until the last is probed. Returns the reported lines."""
    first, *others = servers
    outcomes, said = iter(others), list[str]()

    async def restart() -> FakeServer:
        outcome = next(outcomes)
        if isinstance(outcome, LaunchError):
            raise outcome
        return outcome

    assert isinstance(first, FakeServer)
    task = asyncio.ensure_future(keep_running(first, restart, said.append, policy))
    if isinstance(servers[-1], FakeServer):
        await servers[-1].probed.wait()
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return said


@pytest.mark.parametrize("num_probes", [0, 2])
async def test_a_server_that_stops_answering_is_not_drained_and_replaced_by_one_that_is(num_probes: int) -> None:
    dead, fresh = FakeServer(num_probes), FakeServer()
    said = await _keep_running(dead, LaunchError("one"), LaunchError("two"), fresh)
    assert said == ["the server has failed: no completion; starting it again", "one", "two"]
    assert (dead.stops, fresh.stops) == ([False], [True])


async def test_an_ended_server_is_replaced_at_once() -> None:
    ended, fresh = FakeServer(), FakeServer()
    ended.ended.set()
    assert await _keep_running(ended, fresh) == ["the server has ended; starting it again"]


async def test_after_many_failed_starts_the_last_error_is_raised() -> None:
    with pytest.raises(LaunchError, match="three"):
        await _keep_running(FakeServer(num_probes=0), *map(LaunchError, ("one", "two", "three")))


async def test_no_backoff_follows_the_last_attempt() -> None:
    once = RestartPolicy(probe_interval_s=0.001, first_backoff_s=3600.0, max_failed_starts=1)
    with pytest.raises(LaunchError, match="one"):
        async with asyncio.timeout(30):
            await _keep_running(FakeServer(num_probes=0), LaunchError("one"), policy=once)
