"""Servers of both runtimes work for a long time, with everything that clients do: what they hold stays as it is."""

import asyncio
import contextlib
import random
import time
from pathlib import Path

import pytest

from inference.errors import OverloadedError
from inference.hosting.triton import find_obstacle
from inference.protocol.characters import CharacterRequest
from inference.protocol.completion import CompletionRequest, Priority
from inference.serving.client import Client
from tests.support.chaos_editor import build_texts
from tests.support.reliability import Reliability, find_growth
from tests.support.server_watch import ServerWatch, find_unreleased
from tests.support.servers import EMBEDDED, TRITON, make_slow, run_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

_NUM_USERS = 8
_RECONNECT_SHARE = 0.02  # of a user's requests
_SHORT_S, _FULL_S = 4.0, 1800.0


async def _use(url: str, name: str, end: float) -> None:
    """One user: requests, some of them cancelled, over a connection that is opened again now and then."""
    rng, number = random.Random(name), 0
    while time.monotonic() < end:
        async with Client(url) as client:
            while time.monotonic() < end and rng.random() > _RECONNECT_SHARE:
                number += 1
                text = f"# {name} {number}\n{rng.choice(build_texts())}"
                priority = Priority.PREFETCH if rng.random() < 0.2 else Priority.INTERACTIVE
                request = CompletionRequest(text, max_tokens=16, tenant=name, document=name, priority=priority)
                with contextlib.suppress(TimeoutError, *[OverloadedError] * request.is_prefetch):  # when it is busy
                    async with asyncio.timeout(rng.choice((0.05, 30.0))):
                        async for _ in client.stream(request):
                            pass
                if rng.random() < _RECONNECT_SHARE:
                    await client.ask(CharacterRequest(text.encode()))
                await asyncio.sleep(rng.uniform(0, 0.1))


async def _soak(runtime: str, folder: Path, duration_s: float) -> dict[str, float]:
    folder.mkdir()
    with run_server(make_slow(folder), folder / "state", runtime=runtime) as server:
        watch, end = ServerWatch(server), time.monotonic() + duration_s
        async with watch.run():
            await asyncio.gather(*(_use(server.url, f"user {number}", end) for number in range(_NUM_USERS)))
        async with Client(server.url) as client:
            assert await find_unreleased(client, 30) == 0
    figures = {
        "soak_s": duration_s,
        "soak_growth_mib": find_growth(watch.find(lambda sample: sample.memory_mib)),
        "soak_new_files": find_growth(watch.find(lambda sample: sample.num_files)),
        "soak_new_threads": find_growth(watch.find(lambda sample: sample.num_threads)),
        "soak_new_shm_kib": find_growth(watch.find(lambda sample: sample.shm_kib)),
    }
    return {f"{name}_{server.runtime_name}": figures[name] for name in figures}


async def test_what_servers_hold_does_not_grow(tmp_path: Path, reliability: Reliability) -> None:
    runtimes = [EMBEDDED, TRITON] if reliability.is_full and find_obstacle(None) is None else [EMBEDDED]
    duration_s = reliability.choose(_SHORT_S, _FULL_S)
    measured = await asyncio.gather(*(_soak(each, tmp_path / each, duration_s) for each in runtimes))
    for runtime, figures in zip(runtimes, measured, strict=True):
        reliability.record("soak_triton" if runtime == TRITON else "soak_embedded", figures)
