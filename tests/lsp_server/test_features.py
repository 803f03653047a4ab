"""Each LSP feature, with a real LSP client and a backend that the test feeds."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lsprotocol import types
from lsprotocol.types import Position, Range
from pygls.exceptions import JsonRpcInternalError, JsonRpcRequestCancelled

from inference.errors import OverloadedError
from inference.protocol.completion import Chunks, CompletionRequest, Extent, Healing
from tests.support.lsp_editor import URI, build_capabilities, wait_for
from tests.support.lsp_fakes import FedStream
from tests.support.lsp_in_process import InProcess, run_in_process


@pytest.fixture
async def both() -> AsyncIterator[InProcess]:
    async with run_in_process() as both:
        yield both


async def start_with(both: InProcess, text: str, *arguments: Any, **named: Any) -> None:
    """Starts as `InProcess.start` does, and opens a document."""
    await both.start(*arguments, **named)
    both.editor.open(text)


async def ask_menu(both: InProcess, line: int, character: int, text: str) -> types.CompletionList:
    asking = asyncio.ensure_future(both.editor.menu(line, character))
    (await wait_for_stream(both)).finish(text)
    return await asking


async def wait_for_stream(both: InProcess, number: int = 0) -> FedStream:
    await wait_for(lambda: len(both.backend.streams) > number)
    return both.backend.streams[number]


async def ask_and_finish(both: InProcess, line: int, character: int, text: str) -> types.InlineCompletionList | None:
    number = len(both.backend.streams)
    answer = both.editor.ask(line, character)
    (await wait_for_stream(both, number)).finish(text)
    return await answer


async def find_request(both: InProcess) -> CompletionRequest:
    """Returns the request for a completion at the end of a document with the text "x"."""
    both.editor.open("x")
    await ask_and_finish(both, 0, 1, "")
    return both.backend.streams[-1].request


async def wait_for_configuration(both: InProcess, number: int) -> None:
    """Waits until the server has handled this number of answers to workspace/configuration."""
    await wait_for(lambda: both.editor.num_configuration_requests >= number)
    await both.editor.ask(0, 0)  # any message after the answer; the document is not open


# initialize


async def test_inline_completion_is_announced_without_the_completion_menu(both: InProcess) -> None:
    await both.start(build_capabilities(draws_ghost_text=True))
    assert both.editor.capabilities.inline_completion_provider is not None
    assert both.editor.capabilities.completion_provider is None


async def test_the_completion_menu_is_announced_to_editors_without_inline_completion(both: InProcess) -> None:
    await both.start(build_capabilities(draws_ghost_text=False))
    provider = both.editor.capabilities.completion_provider
    assert provider is not None
    assert "." in (provider.trigger_characters or ())
    assert both.editor.capabilities.inline_completion_provider is None


async def test_edits_are_announced_as_incremental(both: InProcess) -> None:
    await both.start()
    sync = both.editor.capabilities.text_document_sync
    assert isinstance(sync, types.TextDocumentSyncOptions)
    assert sync.open_close
    assert sync.change is types.TextDocumentSyncKind.Incremental


@pytest.mark.parametrize(("encoding", "width"), [("utf-8", 4), ("utf-16", 2), ("utf-32", 1)])
async def test_positions_are_in_the_negotiated_encoding(both: InProcess, encoding: str, width: int) -> None:
    await start_with(both, "😀 a", build_capabilities(encoding))
    assert both.editor.capabilities.position_encoding == encoding
    result = await ask_and_finish(both, 0, width + 2, "b")
    assert both.backend.streams[0].request.prefix == "😀 a"
    assert result is not None
    assert result.items[0].range == Range(Position(0, width + 1), Position(0, width + 2))


# textDocument/didOpen, didChange, didClose


async def test_opening_a_document_connects_before_the_first_request(both: InProcess) -> None:
    await start_with(both, "x")
    await wait_for(lambda: both.num_connects == 1)
    assert both.backend.streams == []


async def test_the_request_contains_the_edited_text(both: InProcess) -> None:
    await start_with(both, "a\nb\nc")
    both.editor.edit(1, 0, "x z", end=(1, 1))
    await ask_and_finish(both, 1, 2, "")
    request = both.backend.streams[0].request
    assert (request.prefix, request.suffix) == ("a\nx ", "z\nc")


async def test_reopening_a_document_replaces_its_text_and_cancels_its_generation(both: InProcess) -> None:
    await start_with(both, "old")
    answer = both.editor.ask(0, 3)
    stream = await wait_for_stream(both)
    both.editor.open("new")
    assert await answer is None
    await wait_for(lambda: stream.is_cancelled)
    await ask_and_finish(both, 0, 3, "")
    assert both.backend.streams[1].request.prefix == "new"


async def test_closing_a_document_answers_its_request_and_cancels_its_generation(both: InProcess) -> None:
    await start_with(both, "x")
    answer = both.editor.ask(0, 1)
    stream = await wait_for_stream(both)
    both.editor.close()
    assert await answer is None
    await wait_for(lambda: stream.is_cancelled)


async def test_a_request_for_an_unopened_document_returns_null_and_is_reported(both: InProcess) -> None:
    await both.start()
    assert await both.editor.ask(0, 0) is None
    assert both.editor.shown == ["midtoken: the editor refers to a document that is not open"]


# textDocument/inlineCompletion


async def test_a_suggestion_is_one_item_with_its_range(both: InProcess) -> None:
    await start_with(both, "return Nod")
    result = await ask_and_finish(both, 0, 10, "e")
    assert result is not None
    (item,) = result.items
    assert (item.insert_text, item.range) == ("Node", Range(Position(0, 7), Position(0, 10)))


async def test_a_suggestion_past_the_end_of_the_text_is_at_its_end(both: InProcess) -> None:
    await start_with(both, "x\nreturn Nod")
    result = await ask_and_finish(both, 2**31 - 1, 2**31 - 1, "e")
    assert result is not None
    assert result.items[0].range == Range(Position(1, 7), Position(1, 10))


@pytest.mark.parametrize(("name", "line_end"), [("VS Code", "\r\n"), ("Neovim", "\n")])
async def test_a_suggestion_has_the_line_ends_that_the_editor_expects(
    both: InProcess, name: str, line_end: str
) -> None:
    await start_with(both, "a\r\nb", name=name)
    result = await ask_and_finish(both, 1, 1, ":\n    c")
    assert result is not None
    assert result.items[0].insert_text == f"b:{line_end}    c"


@pytest.mark.parametrize(("text", "inserted"), [("Node", "Node(value)"), ("None", None)])
async def test_a_suggestion_continues_what_the_menu_has_selected(
    both: InProcess, text: str, inserted: str | None
) -> None:
    await start_with(both, "x = Nod")
    selected = types.SelectedCompletionInfo(Range(Position(0, 4), Position(0, 7)), text)
    answer = both.editor.ask(0, 7, selected)
    (await wait_for_stream(both)).finish("e(value)")
    result = await answer
    assert [item.insert_text for item in result.items] == [inserted] if result else inserted is None


async def test_no_suggestion_is_an_empty_list(both: InProcess) -> None:
    await start_with(both, "x")
    result = await ask_and_finish(both, 0, 1, "")
    assert result is not None
    assert list(result.items) == []


async def test_a_superseded_request_is_answered_with_null(both: InProcess) -> None:
    await start_with(both, "x")
    older = both.editor.ask(0, 0)
    await wait_for_stream(both)
    newer = both.editor.ask(0, 1)
    (await wait_for_stream(both, 1)).finish("y")
    assert await older is None
    assert await newer is not None


async def test_a_request_is_answered_with_null_when_an_edit_follows_it(both: InProcess) -> None:
    await start_with(both, "    x = Nod")
    answer = both.editor.ask(0, 11)
    stream = await wait_for_stream(both)
    both.editor.edit(0, 0, "", end=(0, 4))
    await wait_for(lambda: both.server.documents.get(URI).text == "x = Nod")
    stream.finish("e(value)")
    assert await answer is None


async def test_text_typed_while_a_request_waits_is_served_by_its_generation(both: InProcess) -> None:
    await start_with(both, "x = Nod")
    older = both.editor.ask(0, 7)
    stream = await wait_for_stream(both)
    stream.feed("e")
    both.editor.edit(0, 7, "e")
    newer = both.editor.ask(0, 8)
    assert await older is None
    stream.finish("(value)")
    result = await newer
    assert result is not None
    assert [item.insert_text for item in result.items] == ["Node(value)"]
    assert len(both.backend.streams) == 1


async def test_a_cancelled_request_cancels_its_generation(both: InProcess) -> None:
    await start_with(both, "x")
    answer = both.editor.ask(0, 1)
    stream = await wait_for_stream(both)
    both.editor.cancel_last_request()
    with pytest.raises(JsonRpcRequestCancelled):
        await answer
    await wait_for(lambda: stream.is_cancelled)


async def test_a_failed_request_returns_null_and_is_reported(both: InProcess) -> None:
    await start_with(both, "x")
    answer = both.editor.ask(0, 1)
    (await wait_for_stream(both)).fail(OverloadedError("no room"))
    assert await answer is None
    assert both.editor.shown == ["midtoken: no room"]


async def test_a_failed_connection_is_reported_and_the_request_returns_null(both: InProcess) -> None:
    both.error = OSError(37, "No locks available")
    await start_with(both, "x")
    assert await both.editor.ask(0, 1) is None
    assert both.editor.shown == ["midtoken: cannot connect to the completion server: No locks available"]


# textDocument/completion


async def test_the_menu_is_an_incomplete_list_with_one_item(both: InProcess) -> None:
    await start_with(both, "return Nod", build_capabilities(draws_ghost_text=False))
    menu = await ask_menu(both, 0, 10, "e")
    assert menu.is_incomplete
    assert [item.label for item in menu.items] == ["Node"]


async def test_a_menu_item_has_the_line_ends_of_the_document(both: InProcess) -> None:
    await start_with(both, "a\r\nb", build_capabilities(draws_ghost_text=False), name="Neovim")
    (item,) = (await ask_menu(both, 1, 1, ":\n    c")).items
    assert item.text_edit is not None
    assert item.text_edit.new_text == "b:\r\n    c"


async def test_a_menu_without_a_suggestion_is_empty_and_incomplete(both: InProcess) -> None:
    await start_with(both, "x", build_capabilities(draws_ghost_text=False))
    menu = await ask_menu(both, 0, 1, "")
    assert (menu.is_incomplete, list(menu.items)) == (True, [])


# initializationOptions, workspace/configuration, workspace/didChangeConfiguration


async def test_settings_are_used_in_the_request(both: InProcess) -> None:
    options = {"maxTokens": 9, "healing": "greedy", "extent": "block", "deadlineMs": 500, "maxPrefixBytes": 256}
    await start_with(both, "é" * 1000 + "\nx", options=options)
    await ask_and_finish(both, 1, 1, "")
    request = both.backend.streams[0].request
    assert (request.max_tokens, request.healing, request.extent) == (9, Healing.GREEDY, Extent.BLOCK)
    assert request.deadline_ms == 500
    assert request.chunks is Chunks.LINES
    assert 0 < len(request.prefix.encode()) <= 256


async def test_settings_are_pulled_after_the_handshake(both: InProcess) -> None:
    both.editor.settings = {"maxTokens": 9}
    await both.start(options={"maxTokens": 5, "deadlineMs": 500})
    await wait_for_configuration(both, 1)
    request = await find_request(both)
    assert (request.max_tokens, request.deadline_ms) == (9, 500)


async def test_settings_are_not_pulled_from_editors_without_support(both: InProcess) -> None:
    await both.start(build_capabilities(answers_configuration=False), {"maxTokens": 5})
    both.editor.push_settings({"midtoken": {"deadlineMs": 500}})
    request = await find_request(both)
    assert (request.max_tokens, request.deadline_ms) == (5, 500)
    assert both.editor.num_configuration_requests == 0


async def test_a_deleted_pushed_setting_returns_to_its_default(both: InProcess) -> None:
    await both.start(build_capabilities(answers_configuration=False), {"deadlineMs": 500})
    both.editor.push_settings({"midtoken": {"maxTokens": 9, "deadlineMs": 100}})
    both.editor.push_settings({"midtoken": {}})
    request = await find_request(both)
    assert (request.max_tokens, request.deadline_ms) == (64, None)


@pytest.mark.parametrize("params", [{}, {"settings": None}, {"settings": []}, [], None])
async def test_a_push_without_settings_deletes_them(both: InProcess, params: Any) -> None:
    await both.start(build_capabilities(answers_configuration=False))
    both.editor.push_settings({"midtoken": {"maxTokens": 9}})
    both.editor.send({"jsonrpc": "2.0", "method": "workspace/didChangeConfiguration", "params": params})
    assert (await find_request(both)).max_tokens == 64
    assert both.editor.shown == []


async def test_a_deleted_pulled_setting_returns_to_its_default(both: InProcess) -> None:
    both.editor.settings = {"maxTokens": 9}
    await both.start()
    await wait_for_configuration(both, 1)
    both.editor.settings = None
    both.editor.push_settings(None)
    await wait_for_configuration(both, 2)
    assert (await find_request(both)).max_tokens == 64


@pytest.mark.parametrize("answers", [True, False])
async def test_sections_of_other_servers_are_ignored(both: InProcess, answers: bool) -> None:
    await both.start(build_capabilities(answers_configuration=answers), {"maxTokens": 5})
    both.editor.push_settings({"python": {"analysis": {}}, "pylsp": None, "maxTokens": 9})
    assert (await find_request(both)).max_tokens == 5
    assert both.editor.shown == []


async def test_an_unknown_setting_in_our_section_is_reported_once(both: InProcess) -> None:
    both.editor.settings = {"maxTokenz": 9}
    await both.start()
    for number in (2, 3):
        both.editor.push_settings({"python": {}, "midtoken": {"maxTokenz": 9}})
        await wait_for(lambda number=number: both.editor.num_configuration_requests >= number)  # type: ignore[misc]
    await find_request(both)
    assert len(both.editor.shown) == 1
    assert both.editor.shown[0].startswith("midtoken: unknown setting 'maxTokenz'; known are enabled,")


def _refuse() -> Any:
    raise JsonRpcInternalError()


@pytest.mark.parametrize(
    "answer",
    [lambda: None, list, dict, lambda: [None], lambda: [{}], lambda: [[]], lambda: "no", _refuse],
    ids=["null", "[]", "{}", "[null]", "[{}]", "[[]]", "text", "error"],
)
async def test_an_editor_without_our_settings_is_no_error(both: InProcess, answer: Any) -> None:
    both.editor.answer_configuration = answer
    await both.start(options={"maxTokens": 5})
    await wait_for(lambda: both.editor.num_configuration_requests == 1)
    assert (await find_request(both)).max_tokens == 5
    assert both.editor.shown == []
    assert all(future.done() for future in both.server.protocol._request_futures.values())


async def test_an_error_response_leaves_the_settings_unchanged(both: InProcess) -> None:
    both.editor.settings = {"maxTokens": 9}
    await both.start()
    await wait_for_configuration(both, 1)
    both.editor.answer_configuration = _refuse
    both.editor.push_settings(None)
    await wait_for_configuration(both, 2)
    assert (await find_request(both)).max_tokens == 9


async def test_no_request_is_sent_while_suggestions_are_disabled(both: InProcess) -> None:
    await start_with(both, "x", build_capabilities(answers_configuration=False), {"enabled": False})
    assert await both.editor.ask(0, 1) == types.InlineCompletionList(())
    assert both.num_connects == 0
    both.editor.push_settings({"midtoken": {"enabled": True}})
    assert await ask_and_finish(both, 0, 1, "y") is not None


# shutdown


async def test_shutdown_answers_waiting_requests_and_closes_the_connection(both: InProcess) -> None:
    await start_with(both, "x")
    answer = both.editor.ask(0, 1)
    stream = await wait_for_stream(both)
    await both.editor.client.shutdown_async(None)
    assert stream.is_cancelled
    assert both.backend.is_closed
    assert await asyncio.wait_for(answer, 5) is None


async def test_after_an_accepted_suggestion_each_request_has_an_answer(both: InProcess) -> None:
    await start_with(both, "def f(")
    answer = both.editor.ask(0, 6)
    await wait_for(lambda: len(both.backend.streams) == 1)
    both.backend.streams[0].finish("x):\n    return x")
    await answer
    both.editor.edit(0, 6, "x):\n    return x")
    answer = both.editor.ask(1, 12)
    await wait_for(lambda: len(both.backend.streams) == 2)
    both.backend.streams[1].finish(" + 1")
    await answer
    assert (await both.editor.ghost(1, 12)).insert_text == "x + 1"


async def test_a_name_with_half_a_surrogate_pair_is_no_defect(both: InProcess) -> None:
    await both.start()
    uri = "file:///project/\ud800.py"
    item = {"uri": uri, "languageId": "python", "version": 1, "text": "x"}
    both.editor.send({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": item}})
    params = {
        "textDocument": {"uri": uri},
        "position": {"line": 0, "character": 1},
        "context": {"triggerKind": 2},
    }
    request = {"jsonrpc": "2.0", "id": "odd", "method": "textDocument/inlineCompletion", "params": params}
    answer = asyncio.ensure_future(both.exchange(request))
    (await wait_for_stream(both)).finish(" = 1")
    assert [item["insertText"] for item in (await answer)["result"]["items"]] == ["x = 1"]
