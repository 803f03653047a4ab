"""Who asks for suggestions gets up to three that differ."""

from collections.abc import AsyncIterator

import pytest
from lsprotocol import types

from inference.errors import OverloadedError
from tests.support.lsp_editor import wait_for
from tests.support.lsp_in_process import InProcess, run_in_process


@pytest.fixture
async def both() -> AsyncIterator[InProcess]:
    async with run_in_process() as both:
        await both.start()
        both.editor.open("return ")
        yield both


async def _finish_best(both: InProcess, text: str) -> None:
    await wait_for(lambda: len(both.backend.streams) == 1)
    both.backend.streams[0].finish(text)
    await wait_for(lambda: len(both.backend.streams) == 2)


def _read(result: types.InlineCompletionList | None) -> list[str]:
    assert result is not None
    return [str(item.insert_text) for item in result.items]


async def test_the_best_one_comes_first_and_none_twice(both: InProcess) -> None:
    answer = both.editor.ask(0, 7, is_invoked=True)
    await _finish_best(both, "best")
    for candidate, text in enumerate(["best", "second", "second  ", "third"]):
        both.backend.streams[1].feed(text, candidate)
    both.backend.streams[1].finish()
    assert _read(await answer) == ["best", "second", "third"]


async def test_the_request_for_others_does_not_supersede_the_first(both: InProcess) -> None:
    answer = both.editor.ask(0, 7, is_invoked=True)
    await _finish_best(both, "best")
    both.backend.streams[1].finish()
    await answer
    best, others = (stream.request for stream in both.backend.streams)
    assert (best.num_candidates, best.temperature, best.document != "") == (1, 0.0, True)
    assert (others.num_candidates, others.temperature > 0, others.document) == (4, True, "")


async def test_if_the_server_is_busy_the_best_one_is_returned(both: InProcess) -> None:
    answer = both.editor.ask(0, 7, is_invoked=True)
    await _finish_best(both, "best")
    both.backend.streams[1].fail(OverloadedError("no room"))
    assert _read(await answer) == ["best"]
    assert both.editor.shown == []


async def test_an_edit_ends_the_request_for_others(both: InProcess) -> None:
    answer = both.editor.ask(0, 7, is_invoked=True)
    await _finish_best(both, "best")
    both.editor.edit(0, 7, "x")
    assert await answer is None
    await wait_for(lambda: both.backend.streams[1].is_cancelled)


async def test_after_typing_there_is_one(both: InProcess) -> None:
    answer = both.editor.ask(0, 7)
    await wait_for(lambda: len(both.backend.streams) == 1)
    both.backend.streams[0].finish("best")
    assert _read(await answer) == ["best"]
    assert len(both.backend.streams) == 1
