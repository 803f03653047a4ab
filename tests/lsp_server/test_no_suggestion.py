"""Why a request has no suggestion, by the error that caused it."""

import pytest
from lsprotocol import types
from lsprotocol.types import Position, PositionEncodingKind, Range, TextDocumentContentChangePartial, TextDocumentItem

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError, ServerUnreachableError
from lsp_server.context import cut_context
from lsp_server.documents import MAX_CHARS, Document
from lsp_server.errors import OutOfStepError, TooLargeError, UnexpectedError
from lsp_server.no_suggestion import HIDING, OF_DOCUMENT, Reason, find_disturbance, is_paste, to_no_suggestion
from lsp_server.settings import Settings
from tests.support.lsp_editor import URI, wait_for
from tests.support.lsp_in_process import InProcess, run_in_process


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OverloadedError("full"), Reason.BUSY),
        (ServerUnreachableError("gone"), Reason.UNREACHABLE),
        (ServerError("broke off"), Reason.REFUSED),
        (InvalidRequestError("too long"), Reason.REFUSED),
        (OutOfStepError("lost"), Reason.OUT_OF_STEP),
        (TooLargeError("large"), Reason.TOO_LARGE),
        (UnexpectedError(ValueError()), Reason.FAILED),
    ],
)
def test_each_error_has_its_code(error: MidtokenError, reason: Reason) -> None:
    found = to_no_suggestion(error)
    assert (found.reason, found.message) == (reason, str(error))


def test_a_reason_that_holds_for_the_document_also_hides_what_is_shown_unless_the_text_is_not_known() -> None:
    assert {Reason.OUT_OF_STEP} == OF_DOCUMENT - HIDING


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
        await wait_for(lambda: len(both.editor.reports) == 2)
        assert (len(both.editor.shown), both.num_connects) == (1, 0)


async def test_a_server_that_is_connected_says_which_languages_its_model_knows() -> None:
    async with run_in_process() as both:
        both.backend.languages = ("python",)
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
        await wait_for(lambda: both.num_connects == 1)
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
    assert both.editor.reports[0][:3] == (URI, "off", "too_large")
    assert both.editor.shown == [
        "midtoken: the document has more than 10 million characters, so it gets no suggestions"
    ]
    both.editor.edit(0, 0, "y")
    both.editor.replace_all("x = ")
    await wait_for(lambda: len(both.editor.reports) > 1)
    assert both.editor.reports[1][:2] == (URI, "ready")
    assert (await both.ask_and_finish(0, 4, "1")).items
    assert both.backend.streams[0].request.prefix == "x = "


async def test_a_document_that_grows_too_large_loses_its_suggestions(both: InProcess) -> None:
    await both.start_with("")
    both.editor.edit(0, 0, "x" * (MAX_CHARS + 1))
    await wait_for(lambda: [report[1:3] for report in both.editor.reports][-1:] == [("off", "too_large")])


async def test_each_request_without_a_suggestion_has_its_reason_in_the_log(both: InProcess) -> None:
    await both.start_with("value")
    await both.editor.ask(0, 2)
    assert await both.ask_and_finish(0, 5, "") == _NOTHING
    assert [line for line in both.editor.logged if "no suggestion" in line] == [
        "no suggestion (inside_word)",
        "no suggestion (nothing)",
    ]


async def test_who_asks_in_a_document_without_suggestions_is_told_why(both: InProcess) -> None:
    await both.start_with("x", options={"enabled": False})
    await both.editor.ask(0, 1)
    assert both.editor.shown == []
    await both.editor.ask(0, 1, is_invoked=True)
    assert both.editor.shown == ["midtoken: no suggestion: the setting enabled is false"]


def _find(document: Document, line: int, character: int, offered: frozenset[str] = frozenset()) -> Reason | None:
    place = document.find_place(Position(line, character))
    document.was_pasted = is_paste(document.last_edit, offered)
    found = find_disturbance(document, place, cut_context(document, place.position, Settings()))
    return None if found is None else found.reason


def _open(text: str) -> Document:
    return Document(TextDocumentItem("file:///a.py", "python", 0, text), PositionEncodingKind.Utf16)


def _insert(document: Document, line: int, character: int, *texts: str) -> None:
    at = Position(line, character)
    changes = [TextDocumentContentChangePartial(range=Range(at, at), text=text) for text in texts]
    document.apply(document.version + 1, changes)


def test_inside_a_word_that_was_not_edited_nothing_is_offered() -> None:
    document = _open("value")
    assert [_find(document, 0, at) for at in (3, 5, 0)] == [Reason.INSIDE_WORD, None, None]


def test_inside_a_word_that_is_being_edited_something_is_offered() -> None:
    document = _open("one\nvalue")
    _insert(document, 1, 2, "x")
    found = [_find(document, *place) for place in ((1, 3), (1, 4), (0, 2))]
    assert found == [None, Reason.INSIDE_WORD, Reason.INSIDE_WORD]


def test_after_edits_at_several_places_any_of_them_may_be_the_cursors() -> None:
    document = _open("value")
    _insert(document, 0, 2, "x", "y")
    assert _find(document, 0, 1) is None


@pytest.mark.parametrize("text", ["x = 1\ny = 2", "a" * 41])
def test_after_pasting_nothing_is_offered_until_the_next_edit(text: str) -> None:
    document = _open("")
    _insert(document, 0, 0, text)
    line, before, _ = document.split_at(Position(9, 0))
    assert _find(document, line, len(before)) is Reason.PASTED
    _insert(document, line, len(before), "z")
    assert _find(document, line, len(before) + 1) is None


def test_pasted_text_is_no_reason_elsewhere() -> None:
    document = _open("\nx = ")
    _insert(document, 0, 0, "a = 1\nb = 2")
    assert _find(document, 2, 4) is None


@pytest.mark.parametrize(
    "text",
    [
        *("f(x):\r\n    return x", "(x):\n    return x", "    return x\n    # and more than forty chars"),  # accepted
        *("\n    ", "self.value = value", "()"),  # typed by the editor
    ],
)
def test_what_an_editor_types_and_an_accepted_suggestion_are_not_pasted(text: str) -> None:
    document = _open("")
    _insert(document, 0, 0, text)
    line, before, _ = document.split_at(Position(9, 0))
    offered = frozenset({"def f(x):\n    return x\n    # and more than forty chars"})
    assert _find(document, line, len(before), offered) is None
