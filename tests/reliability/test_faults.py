"""What an editor sees while parts of its server die, hang, fail or lie, and afterwards, without a hand.

A key's *echo* is the answer of the language server to a message that it needs no server for, after the key's edit and
request. A text is *wrong* if it is no beginning of what was completed there in a calm time. Completions are *back* when
a text is shown that was not in the language server's memory.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any  # the fields of a script

import pytest

from benchmarks.baselines.servers import LLAMA_SERVER
from benchmarks.measures.report import Row, find_percentile
from tests.support.chaos_editor import Seen
from tests.support.chaos_proxy import Mode
from tests.support.chaos_world import PASS_S, Kind, World, open_world
from tests.support.reliability import Reliability, describe
from tests.support.servers import EMBEDDED, TRITON, needs_triton

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]  # a world has many faults

Fault = Callable[[World], AbstractAsyncContextManager[None]]

_NUM_RUNS = 20  # of each fault, if there is time
_LONGEST_S = 180.0  # for a world
_BACK_WITHIN_S = 90.0  # a person has given up long before
_MID_STREAM_S = 3 * PASS_S


@asynccontextmanager
async def _kill(world: World) -> AsyncIterator[None]:
    world.send(signal.SIGKILL)
    yield


@asynccontextmanager
async def _stop(world: World) -> AsyncIterator[None]:
    world.send(signal.SIGSTOP)
    try:
        yield
    finally:
        world.send(signal.SIGCONT)


@asynccontextmanager
async def _script(world: World, **script: Any) -> AsyncIterator[None]:
    world.served.change(pass_s=PASS_S, **script)
    try:
        yield
    finally:
        world.served.change(pass_s=PASS_S)


@asynccontextmanager
async def _pass_through(mode: Mode, world: World) -> AsyncIterator[None]:
    assert world.proxy is not None
    async with world.proxy.failing(mode):
        yield


def _list_faults(world: World) -> Mapping[str, Fault]:
    """What can be done to this world."""
    if world.proxy is not None:
        return {mode.name.lower().replace("_", " "): partial(_pass_through, mode) for mode in Mode}
    faults: dict[str, Fault] = {"pass": _script}  # nothing, to compare with
    faults |= {"kill host": _kill, "stop host": _stop}
    faults["model raises"] = partial(_script, fault="raise")
    faults["model raises mid-stream"] = partial(_script, fault="raise", after=3)
    faults["model gives NaN"] = partial(_script, fault="nan")
    faults["model hangs"] = partial(_script, fault="hang")
    return faults


@dataclass(slots=True)
class Course:
    """What the editor saw of one fault."""

    name: str
    backs_s: list[float | None] = field(default_factory=list)
    echo_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    async def run(self, world: World, fault: Fault, duration_s: float) -> None:
        """Has the fault happen in the middle of an answer, and last for some time."""
        await world.wait_until_calm()
        world.editor.seen = seen = Seen()
        world.editor.press()
        await asyncio.sleep(_MID_STREAM_S)
        async with fault(world):
            if "kill" not in self.name:
                await world.editor.type(duration_s)
        back_s = await world.editor.wait_until_back(_BACK_WITHIN_S)
        self.backs_s.append(None if back_s is None else max(back_s, await world.wait_until_calm()))
        self.echo_ms += seen.echo_ms
        self.wrong += seen.wrong

    def find_problems(self) -> list[str]:
        """What a person must not see."""
        return [f"{self.name}: {each}" for each in self.wrong] + [f"{self.name}: never back"] * self.num_never

    @property
    def num_never(self) -> int:
        return self.backs_s.count(None)

    def build_row(self, world: World) -> Row:
        known = [each for each in self.backs_s if each is not None]
        return {
            "fault": self.name,
            "world": world.name,
            "runs": len(self.backs_s),
            "back s, median": median(known) if known else None,
            "back s, worst": max(known, default=None),
            "never back": self.num_never,
            "echo ms, median": median(self.echo_ms),
            "echo ms, p99": find_percentile(self.echo_ms, 99),
            "wrong": len(self.wrong),
        }


@pytest.mark.parametrize(
    ("kind", "runtime"),
    [
        pytest.param(Kind.OWN, EMBEDDED, marks=pytest.mark.full),
        pytest.param(Kind.REMOTE, TRITON, marks=[needs_triton, pytest.mark.full]),
        (Kind.REMOTE, EMBEDDED),
        pytest.param(
            Kind.ENGINE,
            EMBEDDED,
            marks=[
                pytest.mark.full,
                pytest.mark.skipif(not LLAMA_SERVER.exists(), reason="make build/llama-server fetches it"),
            ],
        ),
    ],
)
async def test_no_fault_shows_a_wrong_text_and_completions_come_back_by_themselves(
    kind: Kind, runtime: str, tmp_path: Path, reliability: Reliability
) -> None:
    ends_at = time.monotonic() + _LONGEST_S
    async with open_world(tmp_path / "world", kind, runtime) as world:
        faults = _list_faults(world)
        courses = {name: Course(name) for name in faults}
        for number in range(reliability.choose(1, _NUM_RUNS)):
            for name, fault in faults.items():
                if number == 0 or time.monotonic() < ends_at:
                    await courses[name].run(world, fault, reliability.choose(0.3, 1.0))
                    assert world.is_alive
            _record(reliability, world, [*courses.values()])
    problems = [each for course in courses.values() for each in course.find_problems()]
    assert not problems, describe(problems)


def _record(reliability: Reliability, world: World, courses: list[Course]) -> None:
    known = [back for course in courses for back in course.backs_s if back is not None]
    figures = {
        "faults": sum(len(course.backs_s) for course in courses),
        "faults_echo_ms_p99": find_percentile([ms for course in courses for ms in course.echo_ms], 99),
        "faults_wrong_texts": sum(len(course.wrong) for course in courses),
        "faults_back_s_max": max(known, default=None),
        "faults_never_back": sum(course.num_never for course in courses),
    }
    rows = [course.build_row(world) for course in courses]
    reliability.record(f"faults_{world.name}", {f"{name}_{world.name}": figures[name] for name in figures}, rows)
