"""Requests that are cancelled at random places, over each protocol: all are released, and the others are answered.

The server is the same process before and after, with as many files open.
"""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest

from inference.client.client import Client
from inference.errors import OverloadedError
from inference.protocol.completion import CompletionRequest
from tests.support.chaos_editor import build_texts
from tests.support.reliability import Reliability
from tests.support.servers import EMBEDDED, TRITON, RunningServer, make_slow, needs_triton, run_server, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

_NUM_AT_ONCE = 8  # with those of which the server does not know yet that they are cancelled, fewer than may wait
_LONGEST_S = 0.04  # half of the answers take less
_LIVE_SHARE = 0.05  # of requests that are not cancelled
_TEXTS = build_texts()
_END_S = 30.0  # a request that has no end by then has none


async def _find_unreleased(client: Client, within_s: float) -> int:
    """How many requests a slow model has not released after that time, with nothing left to do."""
    end = time.monotonic() + within_s
    while True:
        counts = json.loads((await client.read_description()).runs_as)
        unreleased: int = max(counts["created"] - counts["released"], counts["held"])
        if not unreleased or time.monotonic() > end:
            return unreleased
        await asyncio.sleep(0.2)


def _count_files(server: RunningServer) -> dict[int, int]:
    """How many files each tritonserver has open, by its process; without Triton, the whole server."""
    is_triton = server.runtime == TRITON
    lines = server.find_processes()
    return {
        pid: psutil.Process(pid).num_fds() for pid, line in lines.items() if not is_triton or "/tritonserver " in line
    }


@dataclass(slots=True)
class _Tally:
    """What became of the requests."""

    num_cancelled: int = 0
    num_stuck: int = 0
    num_refused: int = 0

    async def hurry(self, work: Awaitable[object], after_s: float | None) -> None:
        """Cancels the work after a time; without one, it must end by itself."""
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([task], timeout=_END_S if after_s is None else after_s)
        self.num_stuck += not done and after_s is None
        self.num_cancelled += not done and after_s is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            try:
                await task
            except OverloadedError:
                self.num_refused += 1


async def _stream(client: Client, text: str) -> None:
    async with aclosing(client.stream(CompletionRequest(text, max_tokens=32))) as chunks:
        async for _ in chunks:
            pass


async def _post(session: aiohttp.ClientSession, server: RunningServer, text: str) -> None:
    url = f"{server.endpoint.http_url}/v2/models/completion/generate_stream"
    async with session.post(url, json={"prefix": text, "max_tokens": 32}) as response:
        answer = await response.text()
    if "wait already" in answer:
        raise OverloadedError(answer, "queue")


async def _cancel_often(ask: Callable[[str], Awaitable[object]], num: int, tally: _Tally, seed: int) -> None:
    rng = random.Random(seed)
    plans = iter([None if rng.random() < _LIVE_SHARE else rng.uniform(0, _LONGEST_S) for _ in range(num)])

    async def work(plans: Iterator[float | None]) -> None:
        for after_s in plans:
            await tally.hurry(ask(rng.choice(_TEXTS)), after_s)

    await asyncio.gather(*(work(plans) for _ in range(_NUM_AT_ONCE)))


@pytest.mark.parametrize(
    "runtime", [pytest.param(TRITON, marks=needs_triton), pytest.param(EMBEDDED, marks=pytest.mark.full)]
)
async def test_cancelled_requests_are_released_and_others_answered(
    runtime: str, tmp_path: Path, reliability: Reliability
) -> None:
    num, tally = reliability.choose(25, 6_000 if runtime == TRITON else 9_500), _Tally()  # of each protocol
    with run_server(make_slow(tmp_path, pass_s=0.01), tmp_path / "state", runtime=runtime) as server:
        if runtime == TRITON:
            async with aiohttp.ClientSession() as session:  # its port keeps a connection to the server
                await _post(session, server, "a")
        before = _count_files(server)
        async with Client(server.url) as client, aiohttp.ClientSession() as session:
            await _cancel_often(lambda text: _stream(client, text), num, tally, seed=1)
            if runtime == TRITON:
                await _cancel_often(lambda text: _post(session, server, text), num, tally, seed=2)
            num_unreleased = await _find_unreleased(client, _END_S)
        await asyncio.to_thread(wait_until, lambda: _count_files(server) == before)
    figures = {
        "cancels": tally.num_cancelled,
        "cancels_unreleased": num_unreleased,
        "cancels_stuck": tally.num_stuck,
        "cancels_refused": tally.num_refused,
    }
    reliability.record_of(server.runtime_name, "cancels", figures)
    assert (num_unreleased, tally.num_stuck, tally.num_refused) == (0, 0, 0)
    assert tally.num_cancelled > num / 2
