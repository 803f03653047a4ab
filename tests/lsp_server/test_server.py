"""Each LSP feature, with a real LSP client and a backend that the test feeds."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from lsprotocol.types import Position, Range
from pygls.exceptions import JsonRpcRequestCancelled

from inference.protocol.completion import Chunks, CompletionRequest, Description, Extent, Healing
from lsp_server import assistant
from lsp_server.backend import OnDownload
from tests.support.lsp_editor import LspEditor, build_capabilities, wait_for
from tests.support.lsp_in_process import InProcess


async def find_request(both: InProcess) -> CompletionRequest:
    """Returns the request for a completion at the end of a document with the text "x"."""
    both.editor.open("x")
    await both.ask_and_finish(0, 1, "")
    return both.backend.streams[-1].request


async def wait_for_configuration(both: InProcess, number: int) -> None:
    """Waits until the server has handled this number of answers to workspace/configuration."""
    await wait_for(lambda: both.editor.num_configuration_requests >= number)
    await both.exchange("unknown", {})  # any message after the answer


# initialize


@pytest.mark.parametrize("draws_ghost_text", [True, False])
async def test_edits_are_announced_as_incremental_and_the_menu_only_to_editors_without_inline_completion(
    both: InProcess, draws_ghost_text: bool
) -> None:
    await both.start(build_capabilities(draws_ghost_text=draws_ghost_text))
    announced = both.editor.capabilities
    menu, sync = announced.completion_provider, announced.text_document_sync
    assert (announced.inline_completion_provider is not None, menu is None) == (draws_ghost_text, draws_ghost_text)
    assert menu is None or "." in (menu.trigger_characters or ())
    assert isinstance(sync, types.TextDocumentSyncOptions)
    assert (sync.open_close, sync.change) == (True, types.TextDocumentSyncKind.Incremental)


async def test_positions_are_in_utf16_whatever_the_editor_would_like_best(both: InProcess) -> None:
    capabilities = build_capabilities()
    capabilities.general = types.GeneralClientCapabilities(position_encodings=["utf-8", "utf-16"])
    await both.start_with("😀 a", capabilities)
    assert both.editor.capabilities.position_encoding == "utf-16"
    result = await both.ask_and_finish(0, 4, "b")
    assert both.backend.streams[0].request.prefix == "😀 a"
    assert result.items[0].range == Range(Position(0, 3), Position(0, 4))


# textDocument/didOpen, didChange, didClose


@pytest.mark.parametrize("end", [LspEditor.close, lambda editor: editor.open("new")], ids=["close", "open again"])
async def test_what_ends_a_document_answers_its_request_and_cancels_its_generation(
    both: InProcess, end: Callable[[LspEditor], None]
) -> None:
    await both.start_with("old")
    answer = both.editor.ask(0, 3)
    stream = await both.find_stream()
    end(both.editor)
    assert await answer is None
    await wait_for(lambda: stream.is_cancelled)


async def test_a_request_for_an_unopened_document_returns_null_and_is_reported(both: InProcess) -> None:
    await both.start()
    assert await both.editor.ask(0, 0) is None
    assert both.editor.shown == ["midtoken: the editor refers to a document that is not open"]


# textDocument/inlineCompletion


_PAST_END = (2**31 - 1, 2**31 - 1)


@pytest.mark.parametrize(("text", "position", "line"), [("return Nod", (0, 10), 0), ("x\nreturn Nod", _PAST_END, 1)])
async def test_a_suggestion_is_one_item_with_its_range_in_the_text(
    both: InProcess, text: str, position: tuple[int, int], line: int
) -> None:
    await both.start_with(text)
    (item,) = (await both.ask_and_finish(*position, "e")).items
    assert (item.insert_text, item.range) == ("Node", Range(Position(line, 7), Position(line, 10)))


@pytest.mark.parametrize(("name", "line_end"), [("VS Code", "\r\n"), ("Neovim", "\n")])
async def test_a_suggestion_has_the_line_ends_that_the_editor_expects(
    both: InProcess, name: str, line_end: str
) -> None:
    await both.start_with("a\r\nb", name=name)
    (item,) = (await both.ask_and_finish(1, 1, ":\n    c")).items
    assert item.insert_text == f"b:{line_end}    c"


async def test_nothing_is_suggested_where_it_is_not_known_what_ends_a_line(both: InProcess) -> None:
    await both.start_with('a = "l\rr"\ntot\n', name="some editor")
    answer = await both.editor.ask(1, 3)
    assert answer is not None
    assert not answer.items
    assert both.editor.reports[-1][1:3] == ("off", "unknown_line_ends")


@pytest.mark.parametrize(("text", "inserted"), [(".log", [".log(value)"]), (".lock", None)])
async def test_a_suggestion_continues_what_the_menu_has_selected(
    both: InProcess, text: str, inserted: list[str] | None
) -> None:
    await both.start_with("console.lo")
    selected = types.SelectedCompletionInfo(Range(Position(0, 7), Position(0, 10)), text)
    answer = both.editor.ask(0, 10, selected)
    (await both.find_stream()).finish("g(value)")
    items = getattr(await answer, "items", None)
    assert (items and [item.insert_text for item in items]) == inserted
    assert all(item.range == selected.range for item in items or ())


async def test_a_cancelled_request_cancels_its_generation(both: InProcess) -> None:
    await both.start_with("x")
    answer = both.editor.ask(0, 1)
    stream = await both.find_stream()
    both.editor.cancel_last_request()
    with pytest.raises(JsonRpcRequestCancelled):
        await answer
    await wait_for(lambda: stream.is_cancelled)


# textDocument/completion


@pytest.mark.parametrize(
    ("name", "text", "inserted"),
    [
        ("helix", ":\n    c", ["b:\r\n    c"]),
        ("Neovim", ":\n    c", ["b:\n    c"]),  # nvim-cmp and blink.cmp would draw ^M
        ("Neovim", "", []),
    ],
)
async def test_the_menu_is_an_incomplete_list_with_one_item_or_none(
    both: InProcess, name: str, text: str, inserted: list[str]
) -> None:
    await both.start_with("a\r\nb", build_capabilities(draws_ghost_text=False), name=name)
    asking = asyncio.ensure_future(both.editor.menu(1, 1))
    (await both.find_stream()).finish(text)
    menu = await asking
    assert menu.is_incomplete
    assert [item.text_edit and item.text_edit.new_text for item in menu.items] == inserted


@pytest.mark.parametrize("is_typing", [False, True])
@pytest.mark.parametrize("waits_for", ["settings", "server"])
async def test_a_menu_waits_at_the_start_until_the_next_edit(
    both: InProcess, waits_for: str, is_typing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, connected = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def connect(_: OnDownload) -> None:
        await connected.wait()

    if waits_for == "settings":
        both.editor.answer_configuration = lambda: settings
        monkeypatch.setattr(assistant, "_OWN_WAIT_S", 0.01)
    else:
        both.download = connect
    await both.start_with("x", build_capabilities(draws_ghost_text=False))
    asking = asyncio.ensure_future(both.editor.menu(0, 1))
    await wait_for(lambda: any(report[1] == "starting" for report in both.editor.reports))
    if is_typing:
        both.editor.edit(0, 1, "y")
        assert not (await asking).items
        assert both.editor.logged[-1] == "no suggestion (superseded)"
    both.server.assistant.guard.exclusions._now_s = lambda: time.monotonic() + 2.0  # the start takes so long
    connected.set()
    if not settings.done():
        settings.set_result([None])
    if not is_typing:
        (await both.find_stream()).finish(" = 1")
        assert [item.label for item in (await asking).items] == ["x = 1"]


@pytest.mark.parametrize(
    ("name", "formats", "preview"),
    [
        ("Emacs", ["plaintext"], "b:\n    c"),
        ("Emacs", [], "b:\n    c"),
        ("Emacs", ["markdown", "plaintext"], "```\nb:\n    c\n```"),
        ("helix", [], "```\nb:\n    c\n```"),  # it does not say so, and takes all text for Markdown
    ],
)
async def test_the_preview_in_the_menu_is_markdown_for_editors_that_read_it(
    both: InProcess, name: str, formats: list[str], preview: str
) -> None:
    item = types.ClientCompletionItemOptions(documentation_format=[types.MarkupKind(each) for each in formats] or None)
    capabilities = build_capabilities(draws_ghost_text=False)
    assert capabilities.text_document is not None
    capabilities.text_document.completion = types.CompletionClientCapabilities(completion_item=item)
    await both.start_with("b", capabilities, name=name)
    asking = asyncio.ensure_future(both.editor.menu(0, 1))
    (await both.find_stream()).finish(":\n    c")
    shown = (await asking).items[0].documentation
    assert (shown.value if isinstance(shown, types.MarkupContent) else shown) == preview


# initializationOptions, workspace/configuration, workspace/didChangeConfiguration


async def test_settings_are_used_in_the_request(both: InProcess) -> None:
    options = {"maxTokens": 9, "healing": "greedy", "extent": "block", "deadlineMs": 500, "context": 32}
    await both.start_with("é" * 1000 + "\nx", options=options)
    await both.ask_and_finish(1, 1, "")
    request = both.backend.streams[0].request
    assert (request.max_tokens, request.healing, request.extent) == (9, Healing.GREEDY, Extent.BLOCK)
    assert request.deadline_ms == 500
    assert request.chunks is Chunks.LINES
    assert 0 < len(request.prefix.encode()) <= 256


async def test_what_is_sent_fits_the_server_and_the_setting(both: InProcess) -> None:
    both.backend.description = Description(context_tokens=64)
    await both.start_with("x = 1\n" * 1000)
    assert (await both.ask_and_finish(1000, 0, "b")).items  # before it was connected
    assert (await both.ask_and_finish(999, 5, "b")).items
    assert 256 <= len(both.backend.streams[-1].request.prefix) <= 512
    both.editor.settings = {"context": 32}
    both.editor.push_settings(None)
    await wait_for(lambda: both.contexts == [None, 32])
    both.editor.settings = {"context": "auto"}
    both.editor.push_settings(None)
    await wait_for(lambda: both.contexts == [None, 32, None])


@pytest.mark.parametrize("params", [{}, {"settings": None}, {"settings": []}, [], None])
async def test_settings_are_not_pulled_from_editors_without_support_and_a_push_of_none_deletes_them(
    both: InProcess, params: Any
) -> None:
    await both.start(build_capabilities(answers_configuration=False), {"maxTokens": 5})
    both.editor.push_settings({"midtoken": {"deadlineMs": 500}})
    request = await find_request(both)
    assert (request.max_tokens, request.deadline_ms) == (5, 500)
    both.editor.send({"jsonrpc": "2.0", "method": "workspace/didChangeConfiguration", "params": params})
    request = await find_request(both)
    assert (request.max_tokens, request.deadline_ms) == (5, None)
    assert (both.editor.num_configuration_requests, both.editor.shown) == (0, [])


@pytest.mark.parametrize("is_dynamic", [True, False])
async def test_an_editor_that_can_is_asked_to_tell_that_its_configuration_has_changed(
    is_dynamic: bool, both: InProcess
) -> None:
    registered = list[types.Registration]()

    def register(params: types.RegistrationParams) -> None:
        registered.extend(params.registrations)

    both.editor.client.feature(types.CLIENT_REGISTER_CAPABILITY)(register)
    capabilities = build_capabilities()
    assert capabilities.workspace is not None
    capabilities.workspace.did_change_configuration = types.DidChangeConfigurationClientCapabilities(is_dynamic)
    await both.start(capabilities)
    await wait_for_configuration(both, 1)
    methods = [(each.method, each.register_options) for each in registered]
    assert methods == [("workspace/didChangeConfiguration", None)] * is_dynamic


# shutdown


async def test_shutdown_answers_waiting_requests_and_closes_the_connection(both: InProcess) -> None:
    await both.start_with("x")
    answer = both.editor.ask(0, 1)
    stream = await both.find_stream()
    await both.editor.client.shutdown_async(None)
    assert stream.is_cancelled
    assert both.backend.is_closed
    assert await asyncio.wait_for(answer, 5) is None


async def test_a_document_with_a_path_of_any_length_gets_suggestions(both: InProcess) -> None:
    folder = Path("/" + "/".join(60 * ["\u5b57\u5178"]))
    both.editor.uri = (folder / "a.py").as_uri()
    await both.start(None, None, "editor", Path("/", folder.parts[1]))
    both.editor.open("x")
    assert (await both.ask_and_finish(0, 1, "y")).items
    deeper = Path(folder, *120 * ["\u5b57\u5178"])
    both.editor.close()
    both.editor.uri = (deeper / "a.py").as_uri()
    both.editor.open("x")
    assert (await both.ask_and_finish(0, 1, "y")).items
    assert both.backend.streams[-1].request.path == "a.py"
