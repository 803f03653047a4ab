import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from inference.serving.readiness import Readiness
from tests.support.fake_triton import Answer, FakeTriton, build_last_chunk, run_fake_triton, say


@asynccontextmanager
async def _check(answer: Answer) -> AsyncIterator[tuple[Readiness, FakeTriton]]:
    async with run_fake_triton(answer) as server:
        readiness = Readiness()
        readiness.url = server.url
        yield readiness, server


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (say(build_last_chunk("x")), ""),
        (say("overloaded: 64 requests wait already"), ""),
        (say(waits=True), ""),  # it is busy, and its heart beats
        (say("engine unreachable: llama-server does not answer"), "llama-server does not answer"),
        (say("a model that raises"), "a model that raises"),
        (say(heartbeat_ms=12_000), "the model completion has made no progress for 12 s"),
        (say(heartbeat_ms=None, waits=True), "the model completion at 127.0.0.1:"),
    ],
    ids=["it completes", "overloaded", "busy", "no engine", "it fails", "it hangs", "its process hangs"],
)
async def test_a_server_is_ready_while_it_completes_or_is_only_busy(answer: Answer, problem: str) -> None:
    async with _check(answer) as (readiness, _):
        found = await readiness.find_problem()
    assert (bool(found), found.startswith(problem)) == (bool(problem), True)


async def test_a_server_that_ends_is_not_ready_and_not_asked() -> None:
    async with _check(say(build_last_chunk("x"))) as (readiness, server):
        readiness.end()
        assert (await readiness.find_problem(), server.calls) == (
            "the server is ending; running completions may finish",
            [],
        )


async def test_all_who_ask_at_once_share_one_check_which_no_metric_counts() -> None:
    async with _check(say(build_last_chunk("x"))) as (readiness, server):
        leaving = asyncio.ensure_future(readiness.find_problem())
        await asyncio.sleep(0)
        leaving.cancel()
        assert await asyncio.gather(*(readiness.find_problem() for _ in range(20))) == [""] * 20
        [probe] = [call.arrays for call in server.calls if "priority" in call.arrays]
        assert (probe["priority"].item(), probe["max_tokens"].item()) == (b"probe", 1)


async def test_a_server_that_has_not_started_or_has_ended_is_not_ready() -> None:
    readiness = Readiness()
    assert await readiness.find_problem() == "the server is starting"
    readiness.url = "127.0.0.1:9"
    assert "is started again" in await readiness.find_problem()
