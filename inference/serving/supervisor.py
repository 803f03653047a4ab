"""Keeps a server running: looks at it now and then, and starts it again when it has failed.

Triton itself does not do this: it says that it is ready even when the process that runs a model has died, and never
restarts that process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from inference.errors import LaunchError, ServerError


class Server(Protocol):
    """What is watched; a running TritonServer."""

    async def probe(self) -> None: ...  # raises ServerError where the server has failed
    async def wait_until_ended(self) -> None: ...
    async def stop(self, may_drain: bool = True) -> None: ...


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often to look at a server, and how often to try to start it again."""

    probe_interval_s: float = 5.0
    first_backoff_s: float = 1.0  # the wait after a start that failed; doubles each time
    max_failed_starts: int = 5


async def keep_running(
    server: Server, restart: Callable[[], Awaitable[Server]], on_trouble: Callable[[str], None], policy: RestartPolicy
) -> None:
    """Watches the server, and those that replace it, until this task is cancelled; then drains and stops the last one.

    Raises LaunchError when the server could not be started again `max_failed_starts` times in a row.
    """
    while True:
        may_drain = True
        try:
            reason = await _wait_for_trouble(server, policy.probe_interval_s)
            may_drain = False  # a server that does not answer would not drain either
        finally:
            await server.stop(may_drain)
        on_trouble(f"{reason}; starting it again")
        server = await _start_again(restart, on_trouble, policy)


async def _wait_for_trouble(server: Server, probe_interval_s: float) -> str:
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
    restart: Callable[[], Awaitable[Server]], on_trouble: Callable[[str], None], policy: RestartPolicy
) -> Server:
    for attempt in range(1, policy.max_failed_starts):
        try:
            return await restart()
        except LaunchError as error:
            on_trouble(str(error))
            await asyncio.sleep(policy.first_backoff_s * 2 ** (attempt - 1))
    return await restart()  # the last try: its error is the caller's
