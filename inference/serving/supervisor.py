"""Keeps a server running: probes it regularly and restarts it when it has failed.

Triton does not do this itself. It reports that it is ready even after a model's process has died, and never restarts
that process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from inference.errors import LaunchError, ServerError


class Server(Protocol):
    """The server that is watched. TritonServer implements it."""

    async def probe(self) -> None: ...  # raises ServerError if the server has failed
    async def wait_until_ended(self) -> None: ...
    async def stop(self, may_drain: bool = True) -> None: ...


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often to probe a server, and how often to try to restart it."""

    probe_interval_s: float = 5.0
    first_backoff_s: float = 1.0  # the wait after the first failed start; doubles each time
    max_failed_starts: int = 5


async def keep_running(
    server: Server, restart: Callable[[], Awaitable[Server]], on_failure: Callable[[str], None], policy: RestartPolicy
) -> None:
    """Watches the server and its replacements until this task is cancelled; then drains and stops the current one.

    Raises LaunchError after `max_failed_starts` failed starts in a row.
    """
    while True:
        may_drain = True
        try:
            reason = await _wait_for_failure(server, policy.probe_interval_s)
            may_drain = False  # a failed server would not drain either
        finally:
            await server.stop(may_drain)
        on_failure(f"{reason}; starting it again")
        server = await _start_again(restart, on_failure, policy)


async def _wait_for_failure(server: Server, probe_interval_s: float) -> str:
    ended = asyncio.ensure_future(server.wait_until_ended())
    try:
        while True:
            done, _ = await asyncio.wait([ended], timeout=probe_interval_s)
            if done:
                return "the server has ended"
            try:
                await server.probe()
            except ServerError as error:
                return f"the server has failed: {error}"
    finally:
        ended.cancel()


async def _start_again(
    restart: Callable[[], Awaitable[Server]], on_failure: Callable[[str], None], policy: RestartPolicy
) -> Server:
    for attempt in range(1, policy.max_failed_starts):
        try:
            return await restart()
        except LaunchError as error:
            on_failure(str(error))
            await asyncio.sleep(policy.first_backoff_s * 2 ** (attempt - 1))
    return await restart()  # the last attempt; its error goes to the caller
