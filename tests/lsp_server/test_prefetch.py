"""When text is sent before a key asks for it, which text, and when none is."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from inference.protocol.completion import Priority
from tests.support.lsp_editor import LspEditor, wait_for
from tests.support.lsp_in_process import InProcess
from tests.support.secret_forms import SECRETS

_TEXT = "first\nsecond\nthird"
_LONGER_S = 0.4  # than a cursor must rest


async def _find_prefetch(both: InProcess, number: int = 0) -> tuple[str, str]:
    """The text around the cursor that this prefetch has sent. It is finished."""
    await wait_for(lambda: len(both.backend.prefetches) > number)
    stream = both.backend.prefetches[number]
    stream.finish()
    assert stream.request.priority is Priority.PREFETCH
    return stream.request.prefix, stream.request.suffix


@pytest.mark.parametrize(
    ("happens", "sent"),
    [
        pytest.param(lambda _: None, ("", _TEXT), id="opened"),
        pytest.param(lambda editor: editor.rest((1, 3)), ("first\nsec", "ond\nthird"), id="the cursor rests"),
        pytest.param(lambda editor: editor.rest((0, 2), (2, 1)), ("fi", "hird"), id="text is selected"),
        pytest.param(lambda editor: editor.rest((9, 9)), (_TEXT, ""), id="after the end"),
        pytest.param(
            lambda editor: editor.edit(1, 6, " x"), ("first\nsecond x", "\nthird"), id="an edit without a key"
        ),
    ],
)
async def test_what_the_next_key_will_send_is_sent_when_nothing_has_happened_for_a_moment(
    happens: Callable[[LspEditor], None], sent: tuple[str, str], both: InProcess
) -> None:
    await both.start_with(_TEXT)
    happens(both.editor)

    assert await _find_prefetch(both) == sent
    assert both.backend.streams == []


async def test_after_a_suggestion_the_text_is_sent_as_if_it_had_been_taken(both: InProcess) -> None:
    await both.start_with("def f(a)\n")
    await both.ask_and_finish(1, 0, "")
    assert await _find_prefetch(both) == ("def f(a)\n", "")  # there was none
    await both.ask_and_finish(0, 7, "):\n    pass")
    assert await _find_prefetch(both, 1) == ("def f(a):\n    pass", "\n")
    both.editor.edit(0, 7, "):\n    pass", end=(0, 8))
    both.editor.ask(1, 8)
    request = (await both.find_stream(2)).request
    assert (request.prefix, request.suffix) == ("def f(a):\n    pass", "\n")
    assert request.document == both.backend.prefetches[0].request.document


@pytest.mark.parametrize(
    "happens",
    [LspEditor.close, lambda editor: editor.edit(0, 0, "y"), lambda editor: editor.ask(0, 1)],
    ids=["close", "edit", "key"],
)
async def test_what_happens_next_ends_it(happens: Callable[[LspEditor], Any], both: InProcess) -> None:
    await both.start_with("x")
    await wait_for(lambda: len(both.backend.prefetches) == 1)
    happens(both.editor)

    await wait_for(lambda: both.backend.prefetches[0].is_cancelled)


async def test_a_key_that_follows_at_once_is_sent_alone(both: InProcess) -> None:
    await both.start_with("x")
    answers = [both.editor.ask(0, 1) for _ in range(3)]
    await both.find_stream()
    await asyncio.sleep(_LONGER_S)

    assert both.backend.prefetches == []
    both.backend.streams[-1].finish("y")
    await answers[-1]


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        pytest.param("x", {"prefetch": False}, id="switched off"),
        pytest.param("x", {"enabled": False}, id="no suggestions"),
        pytest.param("x", {"exclude": ["*.py"]}, id="excluded"),
        pytest.param("x", {"languages": ["rust"]}, id="another language"),
        pytest.param("x", {"prefetch": "no"}, id="nobody knows"),
        pytest.param(SECRETS[0].text, {}, id="the cursor is in a secret"),
    ],
)
async def test_nothing_is_sent_ahead(text: str, settings: dict[str, Any], both: InProcess) -> None:
    both.editor.settings = settings
    await both.start_with(text)
    both.editor.rest((0, SECRETS[0].text.index(SECRETS[0].secret) + 4) if not settings else (0, 1))
    await asyncio.sleep(_LONGER_S)

    assert both.backend.prefetches == []


async def test_where_a_letter_was_typed_the_cursor_does_not_rest(both: InProcess) -> None:
    await both.start_with("x")
    both.editor.edit(0, 1, "y")
    answer = both.editor.ask(0, 2)
    stream = await both.find_stream()
    both.editor.rest((0, 2))
    await asyncio.sleep(_LONGER_S)

    assert both.backend.prefetches == []
    stream.finish("z")
    await answer
