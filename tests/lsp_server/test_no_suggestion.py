"""Which documents and places get no suggestion, and how that is told."""

from typing import Any

import pytest
from lsprotocol import types
from lsprotocol.types import Position, Range, TextDocumentContentChangePartial, TextDocumentItem

from inference.errors import ServerError
from inference.protocol.completion import Description
from lsp_server.documents import MAX_CHARS, Document
from lsp_server.no_suggestion import Reason, find_disturbance, is_paste
from lsp_server.session import build_editor_request
from lsp_server.settings import Settings
from tests.support.lsp_editor import URI, wait_for
from tests.support.lsp_in_process import InProcess, run_in_process

_NOTHING = types.InlineCompletionList(())


async def test_another_language_than_the_models_is_said_once() -> None:
    async with run_in_process(languages=("python",)) as both:
        both.editor.language_id = "rust"
        await both.start_with("fn main")
        assert [await both.editor.ask(0, 7), await both.editor.ask(0, 7)] == [_NOTHING] * 2
        (report,) = both.editor.reports
        assert report[:3] == (URI, "off", "other_language")
        (message,) = both.editor.shown
        assert message.startswith("midtoken: the model knows only python, so there are no suggestions for rust;")
        both.editor.close()
        both.editor.open("fn other")
        await wait_for(lambda: [state for _, state, *_ in both.editor.reports] == ["off", "ready", "off"])
        assert (len(both.editor.shown), len(both.models)) == (1, 0)


async def test_a_server_that_is_connected_says_which_languages_its_model_knows() -> None:
    async with run_in_process() as both:
        both.backend.description = Description(("python",))
        both.editor.language_id = "javascript"
        await both.start_with("const x = ")
        await wait_for(lambda: bool(both.editor.reports))
        assert await both.editor.ask(0, 10) == _NOTHING
        assert both.editor.reports[0][:3] == (URI, "off", "other_language")
        assert both.backend.streams == []


async def test_the_setting_languages_decides_for_any_model() -> None:
    async with run_in_process(languages=("python",)) as both:
        await both.start(options={"languages": ["rust"]})
        both.editor.language_id = "rust"
        both.editor.open("fn main")
        await wait_for(lambda: len(both.models) == 1)
        both.editor.settings = {"languages": ["go"]}
        both.editor.push_settings({})
        await wait_for(lambda: any(report[0] for report in both.editor.reports))
        assert both.editor.reports[1:] == [(URI, "off", "other_language", "the setting languages does not list rust")]
        both.editor.settings = {"languages": ["*"]}
        both.editor.push_settings({})
        await wait_for(lambda: len(both.editor.reports) == 3)
        assert both.editor.reports[2][:3] == (URI, "ready", "ready")


async def test_a_document_that_is_too_large_gets_no_suggestions_until_it_is_smaller(both: InProcess) -> None:
    await both.start_with("x" * (MAX_CHARS + 1))
    assert await both.editor.ask(0, 1) == _NOTHING
    both.editor.edit(0, 0, "y")
    both.editor.replace_all("x = ")
    assert (await both.ask_and_finish(0, 4, "1")).items
    assert both.backend.streams[0].request.prefix == "x = "
    both.editor.edit(0, 0, "x" * (MAX_CHARS + 1))
    assert await both.editor.ask(0, 1) == _NOTHING
    told = [report[1:3] for report in both.editor.reports if report[0] == URI]
    assert told == [("off", "too_large"), ("ready", "ready"), ("off", "too_large")]
    shown = "midtoken: the document has more than 10 million characters, so it gets no suggestions"
    assert both.editor.shown == [shown]


async def test_each_request_without_a_suggestion_has_its_reason_in_the_log(both: InProcess) -> None:
    await both.start_with("value")
    await both.editor.ask(0, 2)
    assert await both.ask_and_finish(0, 5, "") == _NOTHING
    asking = both.editor.ask(0, 0)
    (await both.find_stream(1)).fail(ServerError("of another server, which may repeat text"))
    await asking
    assert [line for line in both.editor.logged if "no suggestion" in line] == [
        "no suggestion (inside_word)",
        "no suggestion (nothing)",
        "no suggestion (refused)",
    ]


async def test_who_asks_in_a_document_without_suggestions_is_told_why(both: InProcess) -> None:
    await both.start_with("x", options={"enabled": False})
    await both.editor.ask(0, 1)
    assert both.editor.shown == []
    await both.editor.ask(0, 1, is_invoked=True)
    assert both.editor.shown == ["midtoken: no suggestion: the setting enabled is false"]


_OFFERED = "def f(x):\n    return x\n    # and more than forty chars"


@pytest.mark.parametrize(
    ("text", "edits", "expected"),
    [
        ("value", [], {(0, 3): Reason.INSIDE_WORD, (0, 5): None, (0, 0): None}),
        ("one\nvalue", [(1, 2, "x")], {(1, 3): None, (1, 4): Reason.INSIDE_WORD, (0, 2): Reason.INSIDE_WORD}),
        ("", [(0, 0, "x = 1\ny = 2")], {(1, 5): Reason.PASTED}),
        ("", [(0, 0, "a" * 41)], {(0, 41): Reason.PASTED}),
        ("", [(0, 0, "a" * 41), (0, 41, "z")], {(0, 42): None}),
        ("\nx = ", [(0, 0, "a = 1\nb = 2")], {(2, 4): None}),
        # What was accepted,
        ("", [(0, 0, "f(x):\r\n    return x")], {(1, 12): None}),
        ("", [(0, 0, "(x):\n    return x")], {(1, 12): None}),
        ("", [(0, 0, "    return x\n    # and more than forty chars")], {(1, 31): None}),
        # and what an editor types.
        ("", [(0, 0, "\n    ")], {(1, 4): None}),
        ("", [(0, 0, "self.value = value")], {(0, 18): None}),
        ("", [(0, 0, "()")], {(0, 2): None}),
    ],
)
def test_nothing_is_offered_inside_words_that_are_not_edited_and_after_pasting(
    text: str, edits: list[Any], expected: dict[tuple[int, int], Reason | None]
) -> None:
    document = Document(TextDocumentItem("file:///a.py", "python", 0, text))
    for line, character, *texts in edits:
        at = Range(Position(line, character), Position(line, character))
        document.apply([TextDocumentContentChangePartial(range=at, text=text) for text in texts])
    was_pasted = is_paste(document.last_edit, frozenset({_OFFERED}))
    for asked, reason in expected.items():
        request = build_editor_request(document, Position(*asked), Settings())
        found = find_disturbance(document, was_pasted, request.place, request.context)
        assert (found and found.reason) == reason, asked
