"""The language server and an engine with the bundled model in one process: what keys find read."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.local_executor import LocalExecutor, load_engine
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats
from lsp_server.guard import Cleared
from tests.support.lsp_editor import wait_for
from tests.support.lsp_fakes import FedBackend
from tests.support.lsp_in_process import InProcess
from tests.support.sinks import CollectingSink

_LINE = "    values[{0}] = read(path, {0})\n"
_LINES = "def f(values, path):\n" + "".join(map(_LINE.format, range(600)))  # twice as much as is sent


class _EngineBackend(FedBackend):
    """Asks an engine, whose requests do not fail, and notes what those have cost that were not cancelled."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.answered: list[tuple[CompletionRequest, CompletionStats]] = []
        self._engine = engine

    async def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        events: asyncio.Queue[CompletionChunk] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def take() -> None:
            loop.call_soon_threadsafe(events.put_nowait, sink.chunks[-1])

        sink = CollectingSink(take)
        self._engine.submit(request.value, sink)
        try:
            while not (chunk := await events.get()).is_last:
                yield chunk
            self.answered.append((request.value, sink.stats))
            yield chunk
        finally:
            sink.cancelled.set()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with closing(load_engine(EngineConfig(Path("models/default")))) as engine:
        yield engine


@pytest.fixture
def both(both: InProcess, engine: Engine) -> InProcess:
    both.backend = _EngineBackend(engine)
    return both


def _list_answered(both: InProcess) -> list[tuple[CompletionRequest, CompletionStats]]:
    assert isinstance(both.backend, _EngineBackend)
    return both.backend.answered


async def _press(both: InProcess, line: int, character: int, text: str) -> int:
    """Types a text and asks. Returns how many tokens of the context were read for it."""
    num_before = len(_list_answered(both))
    both.editor.edit(line, character, text)
    lines = text.split("\n")
    await both.editor.ask(line + len(lines) - 1, len(lines[-1]) + (character if len(lines) == 1 else 0))

    def list_new() -> list[CompletionStats]:
        new = _list_answered(both)[num_before:]
        return [stats for request, stats in new if not request.is_prefetch]

    await wait_for(lambda: bool(list_new()))  # the text goes on behind what is shown
    return sum(stats.num_read_tokens for stats in list_new())


async def _wait_for_prefetch(both: InProcess, num_before: int = 0) -> None:
    """Waits until more requests than `num_before` are answered, the last of them a prefetch."""
    await wait_for(lambda: len(answered := _list_answered(both)) > num_before and answered[-1][0].is_prefetch)


async def _rest(both: InProcess, line: int, character: int) -> None:
    """Moves the cursor, and waits until the text is read."""
    num_before = len(_list_answered(both))
    both.editor.rest((line, character))
    await _wait_for_prefetch(both, num_before)


@pytest.mark.parametrize("is_on", [True, False])
async def test_the_first_key_after_opening_and_jumping_finds_its_context_read(
    is_on: bool, both: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalExecutor, "estimate_prefill_s", lambda *_: 0.0)  # on a slow machine, the near one is first
    both.editor.settings = {"prefetch": is_on}
    await both.start_with("\n" + _LINES)
    reads = []
    for line in (0, 300, 30, 500):
        if is_on:
            await _rest(both, line, 0)
        reads.append(await _press(both, line, 0, "x"))

    assert (max(reads) <= 1, min(reads) > 100) == (is_on, not is_on)
