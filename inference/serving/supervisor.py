"""Keeps a server answering: asks it for a tiny completion now and then, and starts it again when none comes back.

Triton says it is ready even when the process that runs the model has died, and never restarts that process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from inference.errors import LaunchError, ServerError


class Server(Protocol):
    """What is watched; a running TritonServer."""

    async def probe(self) -> None: ...
    async def wait_until_ended(self) -> None: ...
    async def stop(self, may_drain: bool = True) -> None: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How often to look and how long to wait."""

    probe_interval_s: float = 5.0
    first_backoff_s: float = 1.0  # doubles with each start that fails
    max_failed_starts: int = 5


async def keep_running(
    server: Server, restart: Callable[[], Awaitable[Server]], on_trouble: Callable[[str], None], pace: Pace
) -> None:
    """Watches the server, and those that follow it, until this task is cancelled; then drains and ends it.

    Raises LaunchError when the server could not be started again `max_failed_starts` times in a row.
    """
    while True:
        may_drain = True
        try:
            reason = await _wait_for_trouble(server, pace.probe_interval_s)
            may_drain = False  # what does not answer would not drain either
        finally:
            await server.stop(may_drain)
        on_trouble(f"{reason}; starting it again")
        server = await _start_again(restart, on_trouble, pace)


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
                return f"the server does not answer: {error}"
    finally:
        ended.cancel()


async def _start_again(
    restart: Callable[[], Awaitable[Server]], on_trouble: Callable[[str], None], pace: Pace
) -> Server:
    for attempt in range(pace.max_failed_starts):
        try:
            return await restart()
        except LaunchError as error:
            failure = error
            on_trouble(str(error))
            await asyncio.sleep(pace.first_backoff_s * 2**attempt)
    raise failure
