"""Who asks for suggestions gets up to three that differ."""

import asyncio

from inference.errors import OverloadedError
from tests.support.lsp_editor import wait_for
from tests.support.lsp_fakes import FedStream
from tests.support.lsp_in_process import InProcess


async def _ask(both: InProcess) -> list[str] | None:
    result = await both.editor.ask(0, 7, is_invoked=True)
    return None if result is None else [str(item.insert_text) for item in result.items]


async def _ask_first(both: InProcess) -> FedStream:
    """A person asks, and the best text is there. Returns the stream of the others, of which the answer has none."""
    await both.start_with("return ")
    asking = asyncio.create_task(_ask(both))
    (await both.find_stream()).finish("best")
    others = await both.find_stream(1)
    assert await asking == ["best"]
    return others


async def test_the_best_one_does_not_wait_for_the_others_which_are_there_when_asked_again(both: InProcess) -> None:
    others = await _ask_first(both)
    again = asyncio.create_task(_ask(both))
    await asyncio.sleep(0.3)
    assert not again.done()
    for candidate, text in enumerate(["best", "second", "second  ", "third"]):
        others.feed(text, candidate)
    others.finish()
    assert await again == ["best", "second", "third"]
    best, drawn = (stream.request for stream in both.backend.streams)  # no request was superseded, and none repeated
    assert (best.num_candidates, best.temperature, best.document != "") == (1, 0.0, True)
    assert (drawn.num_candidates, drawn.temperature > 0, drawn.document) == (4, True, "")


async def test_a_request_elsewhere_ends_the_request_for_others(both: InProcess) -> None:
    others = await _ask_first(both)
    elsewhere = both.editor.ask(0, 6)
    await wait_for(lambda: others.is_cancelled)
    (await both.find_stream(2)).finish("x")
    await elsewhere


async def test_if_the_server_is_busy_the_best_one_is_returned_and_the_others_when_asked_again(both: InProcess) -> None:
    (await _ask_first(both)).fail(OverloadedError("no room"))
    assert (await _ask(both), both.editor.shown) == (["best"], [])
    again = asyncio.create_task(_ask(both))
    others = await both.find_stream(2)
    others.feed("second", 1)
    others.finish()
    assert await again == ["best", "second"]


async def test_an_edit_ends_the_request_for_others(both: InProcess) -> None:
    others = await _ask_first(both)
    again = asyncio.create_task(_ask(both))
    await asyncio.sleep(0.3)
    both.editor.edit(0, 7, "x")
    assert await again is None
    await wait_for(lambda: others.is_cancelled)
