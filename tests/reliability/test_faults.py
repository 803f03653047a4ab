"""What an editor sees while parts of its server die, hang, fail or lie, and afterwards, without a hand.

A key's *echo* is the answer of the language server to a message that it needs no server for, after the key's edit and
request. A text is *wrong* if it is no beginning of what was completed there in a calm time. Completions are *back* when
a text is shown that was not in the language server's memory.
"""

import asyncio
import os
import random
import signal
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any  # the fields of a script

import pytest

from benchmarks.baselines.servers import LLAMA_SERVER, run_llama_server
from benchmarks.measures.report import Row, find_percentile
from inference.platforms import ADDRESS
from midtoken.installed import find_bundled_model
from tests.support.chaos_editor import ChaosEditor, Seen
from tests.support.reliability import Reliability
from tests.support.servers import (
    EMBEDDED,
    TRITON,
    Served,
    end_servers,
    find_processes,
    make_slow,
    needs_triton,
    run_server,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]  # a world has many faults

_CALM_S = 60.0
PASS_S = 0.02  # long enough for a fault in the middle of an answer


_HOST = "inference.hosting.host"  # in its command line
_CHUNK_BYTES = 2**16
_DELAY_S = 0.3
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class _Mode(Enum):
    """What happens to the bytes."""

    PASS = auto()
    DELAY = auto()
    BLACK_HOLE = auto()  # nothing passes, never; connections stay open
    REFUSE = auto()  # nobody listens, and connections are closed
    RESET = auto()  # connections are reset after the first bytes of an answer
    MALFORMED = auto()  # the answers are random bytes
    TRUNCATED = auto()  # half of the first bytes of an answer, and then the end


class _Proxy:
    """Between a client and a server on loopback: it delays, cuts and spoils what passes. Use `_run_proxy`."""

    def __init__(self, upstream: str) -> None:
        self.mode, self.port = _Mode.PASS, 0
        self._upstream_port = int(upstream.rpartition(":")[2])
        self._random = random.Random(0)
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Opens its port; later the same one."""
        self._listener = await asyncio.start_server(self._serve, ADDRESS, self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Closes its port and all connections."""
        if self._listener is not None:
            self._listener.close()
        for writer in self._writers:
            writer.transport.abort()

    @asynccontextmanager
    async def failing(self, mode: _Mode) -> AsyncIterator[None]:
        """In this mode inside the block."""
        if mode is _Mode.REFUSE:
            self.close()
        self.mode = mode
        try:
            yield
        finally:
            self.mode = _Mode.PASS
            if mode is _Mode.REFUSE:
                await self.listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = {writer}
        try:
            from_server, to_server = await asyncio.open_connection(ADDRESS, self._upstream_port)
            writers.add(to_server)
            self._writers |= writers
            await asyncio.gather(self._pump(reader, to_server), self._pump(from_server, writer, is_answer=True))
        except OSError:  # one side is gone
            pass
        finally:
            self._writers -= writers
            for each in writers:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool = False) -> None:
        """Passes on until one side ends."""
        while data := await reader.read(_CHUNK_BYTES):
            if self.mode is _Mode.DELAY:
                await asyncio.sleep(_DELAY_S)
            if self.mode is _Mode.BLACK_HOLE:
                continue
            if is_answer and self.mode is _Mode.RESET:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                raise ConnectionResetError
            if is_answer and self.mode is _Mode.TRUNCATED:
                writer.write(data[: len(data) // 2])
                break
            writer.write(self._random.randbytes(len(data)) if is_answer and self.mode is _Mode.MALFORMED else data)
            await writer.drain()
        if self.mode is not _Mode.BLACK_HOLE:
            writer.close()


@asynccontextmanager
async def _run_proxy(upstream: str) -> AsyncIterator[_Proxy]:
    """Runs it inside the block. `upstream`: ends with a port on loopback."""
    proxy = _Proxy(upstream)
    await proxy.listen()
    try:
        yield proxy
    finally:
        proxy.close()


@dataclass(slots=True)
class World:
    """What can be broken."""

    name: str  # for figures
    served: Served
    folder: Path  # whose name is in the command line of each process
    editor: ChaosEditor
    proxy: _Proxy | None
    num_hosts: int  # while nothing is wrong

    def find_hosts(self) -> list[int]:
        """The processes of the host that the language server has started."""
        return [pid for pid, command in find_processes(self.folder / "state").items() if _HOST in command]

    async def wait_until_calm(self) -> float:
        """Types until there is one host, and none that is ending. Returns the longest wait for a text.

        A host that is about to end may answer first.
        """
        longest_s = 0.0
        async with asyncio.timeout(_CALM_S):
            while len(self.find_hosts()) != self.num_hosts:
                longest_s = max(longest_s, await self.editor.wait_until_back(_CALM_S) or 0.0)
                await asyncio.sleep(0.1)
        return longest_s

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the host."""
        for pid in self.find_hosts():
            os.kill(pid, number)


@asynccontextmanager
async def open_world(folder: Path, kind: str, runtime: str) -> AsyncIterator[World]:
    """Runs one inside the block, in which the editor has learned what is right.

    `kind`: whose the server is: the editor's own, a remote one, or that of an engine. `runtime`: of a remote one.
    """
    folder.mkdir()
    served, state_dir = make_slow(folder, pass_s=PASS_S), folder / "state"
    state_dir.mkdir()
    async with AsyncExitStack() as stack:
        proxy, arguments = None, [f"--model={served.model_dir}"]
        if kind == "remote":
            server = stack.enter_context(run_server(served, folder / "server", runtime=runtime))
            proxy = await stack.enter_async_context(_run_proxy(server.url))
            arguments = [f"--server=127.0.0.1:{proxy.port}"]
        elif kind == "engine":
            url = stack.enter_context(run_llama_server(find_bundled_model(), folder))
            proxy = await stack.enter_async_context(_run_proxy(url))
            arguments += [f"--engine=http://127.0.0.1:{proxy.port}"]
        command = [sys.executable, "-m", "midtoken", "lsp", f"--state-dir={state_dir}", *arguments]
        command += [] if kind == "remote" else [f"--model-repository={served.repository}"]
        editor = await ChaosEditor.start(command)
        editor.prepare()
        stack.push_async_callback(_end, editor, folder)
        await editor.learn()
        name = f"{kind}_{runtime.removeprefix('--runtime=')}"
        yield World(name, served, folder, editor, proxy, int(kind != "remote"))


async def _end(editor: ChaosEditor, folder: Path) -> None:
    if editor.process.returncode is None:
        await editor.leave()
    end_servers(folder / "state")


Fault = Callable[[], AbstractAsyncContextManager[None]]

_NUM_RUNS = 20  # of each fault, if there is time
_LONGEST_S = 180.0  # for a world
_BACK_WITHIN_S = 90.0  # a person has given up long before
_MID_STREAM_S = 3 * PASS_S


@asynccontextmanager
async def _between(begin: Callable[[], None], end: Callable[[], None]) -> AsyncIterator[None]:
    begin()
    try:
        yield
    finally:
        end()


def _list_faults(world: World) -> Mapping[str, Fault]:
    """What can be done to this world."""
    if world.proxy is not None:
        return {mode.name.lower().replace("_", " "): partial(world.proxy.failing, mode) for mode in _Mode}
    change = partial(world.served.change, pass_s=PASS_S)
    scripts: dict[str, dict[str, Any]] = {
        "pass": {},  # nothing, to compare with
        "model raises": {"fault": "raise"},
        "model raises mid-stream": {"fault": "raise", "after": 3},
        "model gives NaN": {"fault": "nan"},
        "model hangs": {"fault": "hang"},
    }
    return {
        "kill host": partial(_between, partial(world.send, signal.SIGKILL), lambda: None),
        "stop host": partial(_between, partial(world.send, signal.SIGSTOP), partial(world.send, signal.SIGCONT)),
        **{name: partial(_between, partial(change, **script), change) for name, script in scripts.items()},
    }


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
        async with fault():
            if "kill" not in self.name:
                await world.editor.type(duration_s)
        back_s = await world.editor.wait_until_back(_BACK_WITHIN_S)
        self.backs_s.append(None if back_s is None else max(back_s, await world.wait_until_calm()))
        self.echo_ms += seen.echo_ms
        self.wrong += seen.wrong
        assert world.editor.process.returncode is None, f"{self.name}: the language server has ended"

    def build_row(self, world: World) -> Row:
        known = [each for each in self.backs_s if each is not None]
        return {
            "fault": self.name,
            "world": world.name,
            "runs": len(self.backs_s),
            "back s, median": median(known) if known else None,
            "back s, worst": max(known, default=None),
            "never back": self.backs_s.count(None),
            "echo ms, median": median(self.echo_ms),
            "echo ms, p99": find_percentile(self.echo_ms, 99),
            "wrong": len(self.wrong),
        }


@pytest.mark.parametrize(
    ("kind", "runtime"),
    [
        pytest.param("own", EMBEDDED, marks=pytest.mark.full),
        pytest.param("remote", TRITON, marks=[needs_triton, pytest.mark.full]),
        ("remote", EMBEDDED),
        pytest.param(
            "engine",
            EMBEDDED,
            marks=[
                pytest.mark.full,
                pytest.mark.skipif(not LLAMA_SERVER.exists(), reason="make build/llama-server fetches it"),
            ],
        ),
    ],
)
async def test_no_fault_shows_a_wrong_text_and_completions_come_back_by_themselves(
    kind: str, runtime: str, tmp_path: Path, reliability: Reliability
) -> None:
    ends_at = time.monotonic() + _LONGEST_S
    async with open_world(tmp_path / "world", kind, runtime) as world:
        faults = _list_faults(world)
        courses = {name: Course(name) for name in faults}
        for number in range(reliability.choose(1, _NUM_RUNS)):
            for name, fault in faults.items():
                if number == 0 or time.monotonic() < ends_at:
                    await courses[name].run(world, fault, reliability.choose(0.3, 1.0))
            _record(reliability, world, [*courses.values()])
    problems = {name: each.wrong for name, each in courses.items() if each.wrong or None in each.backs_s}
    assert not problems, "wrong texts, or, where there are none, completions never came back"


def _record(reliability: Reliability, world: World, courses: list[Course]) -> None:
    known = [back for course in courses for back in course.backs_s if back is not None]
    figures = {
        "faults": sum(len(course.backs_s) for course in courses),
        "faults_echo_ms_p99": find_percentile([ms for course in courses for ms in course.echo_ms], 99),
        "faults_wrong_texts": sum(len(course.wrong) for course in courses),
        "faults_back_s_max": max(known, default=None),
        "faults_never_back": sum(course.backs_s.count(None) for course in courses),
    }
    reliability.record_of(world.name, "faults", figures, [course.build_row(world) for course in courses])
