"""Who asks for suggestions gets up to three that differ."""

import asyncio

from inference.errors import OverloadedError
from tests.support.lsp_editor import wait_for
from tests.support.lsp_fakes import FedStream
from tests.support.lsp_in_process import InProcess


async def _ask(both: InProcess) -> tuple["asyncio.Task[list[str] | None]", FedStream]:
    """A person asks, and the best text is there. Returns the task of reading the answer, and the stream of others."""
    await both.start_with("return ")

    async def ask() -> list[str] | None:
        result = await both.editor.ask(0, 7, is_invoked=True)
        return None if result is None else [str(item.insert_text) for item in result.items]

    asking = asyncio.create_task(ask())
    (await both.find_stream()).finish("best")
    return asking, await both.find_stream(1)


async def test_the_best_one_comes_first_and_none_twice_and_its_request_is_not_superseded(both: InProcess) -> None:
    asking, others = await _ask(both)
    for candidate, text in enumerate(["best", "second", "second  ", "third"]):
        others.feed(text, candidate)
    others.finish()
    assert await asking == ["best", "second", "third"]
    best, drawn = (stream.request for stream in both.backend.streams)
    assert (best.num_candidates, best.temperature, best.document != "") == (1, 0.0, True)
    assert (drawn.num_candidates, drawn.temperature > 0, drawn.document) == (4, True, "")


async def test_if_the_server_is_busy_the_best_one_is_returned(both: InProcess) -> None:
    asking, others = await _ask(both)
    others.fail(OverloadedError("no room"))
    assert (await asking, both.editor.shown) == (["best"], [])


async def test_an_edit_ends_the_request_for_others(both: InProcess) -> None:
    asking, others = await _ask(both)
    both.editor.edit(0, 7, "x")
    assert await asking is None
    await wait_for(lambda: others.is_cancelled)


async def test_after_typing_there_is_one(both: InProcess) -> None:
    await both.start_with("return ")
    assert [item.insert_text for item in (await both.ask_and_finish(0, 7, "best")).items] == ["best"]
    assert len(both.backend.streams) == 1
