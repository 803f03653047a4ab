"""Requests that are cancelled at random places, over each protocol: all are released, and the others are answered.

The server is the same process before and after, with as many files open.
"""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import aiohttp
import pytest

from inference.client.client import Client
from inference.errors import OverloadedError
from inference.protocol.completion import CompletionRequest
from tests.support.chaos_editor import build_texts, start_editor
from tests.support.chaos_proxy import run_proxy
from tests.support.reliability import Reliability
from tests.support.server_watch import END_S, Tally, count_files, find_unreleased
from tests.support.servers import EMBEDDED, TRITON, RunningServer, make_slow, needs_triton, run_server, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

_NUM_AT_ONCE = 8  # with those of which the server does not know yet that they are cancelled, fewer than may wait
_LONGEST_S = 0.04  # half of the answers take less
_LIVE_SHARE = 0.05  # of requests that are not cancelled
_TEXTS = build_texts()


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


async def _cancel_often(ask: Callable[[str], Awaitable[object]], num: int, tally: Tally, seed: int) -> None:
    rng = random.Random(seed)
    plans = iter([None if rng.random() < _LIVE_SHARE else rng.uniform(0, _LONGEST_S) for _ in range(num)])

    async def work(plans: Iterator[float | None]) -> None:
        for after_s in plans:
            await tally.hurry(ask(rng.choice(_TEXTS)), after_s)

    await asyncio.gather(*(work(plans) for _ in range(_NUM_AT_ONCE)))


async def _cancel_in_editor(address: str, folder: Path, num: int, tally: Tally) -> None:
    command = [sys.executable, "-m", "midtoken", "lsp", f"--state-dir={folder}", f"--server={address}"]
    editor, rng = await start_editor(command), random.Random(0)
    await editor.learn()
    answers = []
    for _ in range(num):
        answers.append(editor.press())  # the one before is cancelled
        await asyncio.sleep(rng.uniform(0, _LONGEST_S / 3))
    done, waiting = await asyncio.wait(answers, timeout=END_S)
    tally.num_stuck += len(waiting)
    tally.num_cancelled += sum(answer.result().result is None for answer in done)
    assert not editor.seen.wrong
    assert await editor.wait_until_back(END_S) is not None
    await editor.leave()


@pytest.mark.parametrize(
    "runtime", [pytest.param(TRITON, marks=needs_triton), pytest.param(EMBEDDED, marks=pytest.mark.full)]
)
async def test_cancelled_requests_are_released_and_others_answered(
    runtime: str, tmp_path: Path, reliability: Reliability
) -> None:
    num, tally = reliability.choose(25, 6_000 if runtime == TRITON else 9_500), Tally()  # of each protocol
    with run_server(make_slow(tmp_path, pass_s=0.01), tmp_path / "state", runtime=runtime) as server:
        if runtime == TRITON:
            async with aiohttp.ClientSession() as session:  # its port keeps a connection to the server
                await _post(session, server, "a")
        before = count_files(server)
        async with Client(server.url) as client, aiohttp.ClientSession() as session:
            await _cancel_often(lambda text: _stream(client, text), num, tally, seed=1)
            if runtime == TRITON:
                await _cancel_often(lambda text: _post(session, server, text), num, tally, seed=2)
            async with run_proxy(server.url) as proxy:  # a language server needs the address of a port
                await _cancel_in_editor(f"127.0.0.1:{proxy.port}", tmp_path / "lsp", num, tally)
            num_unreleased = await find_unreleased(client, END_S)
        await asyncio.to_thread(wait_until, lambda: count_files(server) == before)
    figures = {
        "cancels": tally.num_cancelled,
        "cancels_unreleased": num_unreleased,
        "cancels_stuck": tally.num_stuck,
        "cancels_refused": tally.num_refused,
    }
    reliability.record(
        f"cancels_{server.runtime_name}", {f"{name}_{server.runtime_name}": figures[name] for name in figures}
    )
    assert (num_unreleased, tally.num_stuck, tally.num_refused) == (0, 0, 0)
    assert tally.num_cancelled > num / 2
