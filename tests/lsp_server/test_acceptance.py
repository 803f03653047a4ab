"""What counts as accepted, typed and wrong, by the edits of an editor."""

import re
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

import pytest
from lsprotocol import types

from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason
from lsp_server.usage import Counts, UsageFile
from tests.support.lsp_editor import URI, LspEditor
from tests.support.lsp_in_process import InProcess, run_in_process

_DAY = date(2026, 11, 24)
_WORD = "x = va", "lue(one)"  # the text before the cursor, and what is suggested
_Edit = tuple[tuple[int, int], tuple[int, int], str]  # what is replaced, by what


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[InProcess]:
    """As that of other files; it counts."""
    async with run_in_process() as both:
        both.server.usage = UsageFile(tmp_path / "stats" / "counts.jsonl", lambda: _DAY)
        yield both


def _read(both: InProcess) -> Counts:
    both.server.usage.write()
    return both.server.usage.read().get((_DAY, "python"), Counts())


async def _settle(both: InProcess) -> None:
    """Returns when the server has read what was sent: it answers in order."""
    await both.editor.client.workspace_execute_command_async(types.ExecuteCommandParams("midtoken.stats"))


def _change(editor: LspEditor, *edits: _Edit) -> None:
    """Sends the edits in one notification."""
    changes = [
        types.TextDocumentContentChangePartial(types.Range(types.Position(*start), types.Position(*end)), text)
        for start, end, text in edits
    ]
    document = types.VersionedTextDocumentIdentifier(editor._version, URI)
    editor.client.text_document_did_change(types.DidChangeTextDocumentParams(document, changes))


def _insert(character: int, text: str) -> _Edit:
    return (0, character), (0, character), text


@pytest.mark.parametrize(
    ("case", "edits", "expected"),
    [
        pytest.param(_WORD, [_insert(6, "lue(one)")], Counts(whole=1, saved_keys=7), id="whole"),
        pytest.param(_WORD, [((0, 4), (0, 6), "value(one)")], Counts(whole=1, saved_keys=7), id="its word, too"),
        pytest.param(_WORD, [_insert(6, "lue")], Counts(word=1, saved_keys=2), id="word"),
        pytest.param(_WORD, [_insert(6, "lu")], Counts(), id="part of a word"),
        pytest.param(
            _WORD,
            [_insert(6, "lue"), _insert(9, "(one)")],
            Counts(whole=1, word=1, saved_keys=6),
            id="word, then the rest",
        ),
        pytest.param(_WORD, [_insert(6, "l"), _insert(7, "u")], Counts(), id="typed"),
        pytest.param(_WORD, [_insert(6, "l"), _insert(7, "x")], Counts(wrong_chars=7), id="typed, then wrong"),
        pytest.param(_WORD, [_insert(6, "lux")], Counts(wrong_chars=6), id="wrong"),
        pytest.param(_WORD, [_insert(6, "\n    ")], Counts(wrong_chars=8), id="a new line"),
        pytest.param(_WORD, [((0, 5), (0, 6), "")], Counts(), id="deleted"),
        pytest.param(("x = va\n", "lue(one)"), [((1, 0), (1, 0), "elsewhere")], Counts(), id="elsewhere"),
        pytest.param(("x = va", "l"), [_insert(6, "l")], Counts(), id="one character"),
        pytest.param(("f", "(one)"), [_insert(1, "()"), _insert(2, "o")], Counts(), id="an added bracket"),
        pytest.param(
            ("f", "(one)"),
            [_insert(1, "()"), ((0, 2), (0, 3), "one)")],
            Counts(whole=1, saved_keys=3),
            id="accepted before an added bracket",
        ),
        pytest.param(
            ("f()", "one, two)"), [_insert(2, "one"), _insert(5, ", ")], Counts(word=1, saved_keys=2), id="in brackets"
        ),
        pytest.param(
            ("if x:\r\n", "    one()\n    two()"),
            [((1, 0), (1, 0), "    one()"), ((1, 9), (1, 9), "\r\n    two()")],
            Counts(whole=1, line=1, saved_keys=8 + 9),
            id="line",
        ),
        pytest.param(("if x:", "\n    one"), [_insert(5, "\n    ")], Counts(), id="a new line that was suggested"),
    ],
)
async def test_an_edit_says_what_was_accepted(
    both: InProcess, case: tuple[str, str], edits: list[_Edit], expected: Counts
) -> None:
    text, shown = case
    lines = text.split("\r\n")
    place = (len(lines) - 1, 2 if text == "f()" else len(lines[-1].rstrip("\n")))
    await both.start_with(text)
    answer = await both.ask_and_finish(*place, shown)
    assert answer.items
    for edit in edits:
        _change(both.editor, edit)
    await _settle(both)

    assert _read(both) == expected + Counts(shown=1)


async def test_edits_of_one_notification_are_one_step_and_letters_in_it_are_typed(both: InProcess) -> None:
    """Neovim sends together what happened before it asks again."""
    await both.start_with("f()")
    await both.ask_and_finish(0, 2, "self):\n    pass")
    _change(both.editor, ((0, 2), (0, 3), ""), _insert(2, "self):\n    pass"))
    await both.ask_and_finish(1, 8, "\nnext")
    _change(both.editor, ((1, 8), (1, 8), "\n"), *(((2, at), (2, at), char) for at, char in enumerate("next")))
    await _settle(both)

    assert _read(both) == Counts(shown=2, whole=1, saved_keys=14)


async def test_a_suggestion_is_counted_once_while_the_typing_agrees(both: InProcess) -> None:
    await both.start_with("x = va")
    await both.ask_and_finish(0, 6, "lue(one)")
    both.editor.edit(0, 6, "l")
    assert (await both.editor.ghost(0, 7)).insert_text == "value(one)"
    both.editor.edit(0, 7, "ue")
    assert (await both.editor.ghost(0, 9)).insert_text == "value(one)"
    both.editor.edit(0, 9, "X")
    await both.ask_and_finish(0, 10, "yz")
    await _settle(both)

    assert _read(both) == Counts(shown=2, word=1, saved_keys=1, wrong_chars=5)


async def test_no_text_gets_into_the_file(both: InProcess, tmp_path: Path) -> None:
    both.editor.language_id = "canary = 'in the language'"
    await both.start_with("canary_before")
    await both.ask_and_finish(0, 13, " + canary_shown")
    both.editor.edit(0, 13, " + canary_shown")
    await _settle(both)

    (written,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert (
        written.read_text() == '{"day": "2026-11-24", "language": "other", "shown": 1, "whole": 1, "saved_keys": 14}\n'
    )
    assert (written.stat().st_mode & 0o777, written.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_the_setting_ends_the_counting(both: InProcess, tmp_path: Path) -> None:
    both.editor.settings = {"stats": False}
    await both.start_with("x = va")
    await both.ask_and_finish(0, 6, "lue(one)")
    answer = await both.editor.client.workspace_execute_command_async(types.ExecuteCommandParams("midtoken.stats"))
    await both.server.close_all()

    assert answer == "The setting stats is false, so nothing is counted here.\n"
    assert list(tmp_path.iterdir()) == []


async def test_an_editor_shows_what_was_counted_up_to_now(both: InProcess) -> None:
    await both.start_with("x = va")
    await both.ask_and_finish(0, 6, "lue(one)")
    both.editor.edit(0, 6, "lue(one)")
    answer = await both.editor.client.workspace_execute_command_async(types.ExecuteCommandParams("midtoken.stats"))

    starts = re.compile(r"(python|\d{4}-\d\d-\d\d|all) ")
    rows = [line.split()[1:] for line in str(answer).splitlines() if starts.match(line)]
    assert rows == 3 * [["1", "1", "0", "0", "7", "0", "0"]]


@pytest.mark.parametrize(("num_read_tokens", "first_reads"), [(500, 1), (3, 0)])
async def test_a_key_that_waited_until_the_model_had_read_the_text_is_counted(
    num_read_tokens: int, first_reads: int, both: InProcess
) -> None:
    await both.start_with("x = va")
    answer = both.editor.ask(0, 6)
    costs = CompletionStats(num_read_tokens=num_read_tokens)
    (await both.find_stream(0)).send(CompletionChunk("lue", finish_reason=FinishReason.EXTENT, stats=costs))
    await answer
    await _settle(both)
    assert _read(both) == Counts(shown=1, first_reads=first_reads)
