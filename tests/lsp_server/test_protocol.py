"""The changes to pygls's behaviour."""

from typing import Any

import pytest

from tests.support.lsp_editor import URI, build_capabilities, wait_for
from tests.support.lsp_in_process import InProcess


async def wait_for_text(both: InProcess, text: str) -> None:
    await wait_for(lambda: _find_text(both) == text)


def _find_text(both: InProcess) -> str | None:
    session = both.server.assistant.sessions.get(URI)
    return None if session is None or session.document.problem else "".join(session.document.lines)


async def test_edits_leave_no_copy_of_the_text_and_no_future_in_pygls(both: InProcess) -> None:
    await both.start(build_capabilities(answers_configuration=False))  # otherwise a request is pending
    both.editor.open("")
    for _ in range(100):
        both.editor.edit(0, 0, "x")
    await wait_for_text(both, "x" * 100)
    assert both.server.workspace.text_documents == {}
    assert len(both.server.protocol._request_futures) <= 1  # that of `initialized`


# Which messages are refused


_DOCUMENT = {"textDocument": {"uri": URI}}
_ASK = {**_DOCUMENT, "position": {"line": 0, "character": 0}, "context": {"triggerKind": 1}}


_OTHER_FORMS: tuple[Any, ...] = (
    {name: value for name, value in _ASK.items() if name != "context"},
    _ASK | {"context": {"triggerKind": 99}},
    _ASK | {"context": None},
    *(_ASK | {"position": {"line": line, "character": 0}} for line in (-1, 2**31, "x")),
    _ASK | {"textDocument": {"uri": None}},
    *({}, [], None, "text"),
)


async def test_a_request_of_another_form_is_refused_and_not_shown(both: InProcess) -> None:
    await both.start()
    for params in _OTHER_FORMS:
        response = await both.exchange("textDocument/inlineCompletion", params)
        assert response["error"]["code"] == -32602, params
    assert both.editor.shown == []


async def test_an_unknown_method_and_a_feature_that_is_not_offered_are_refused_and_not_shown(both: InProcess) -> None:
    await both.start(build_capabilities(draws_ghost_text=False))
    both.editor.send({"jsonrpc": "2.0", "method": "midtoken/unknown", "params": {"text": "x"}})
    both.editor.send({"jsonrpc": "2.0", "method": "$/unknown"})
    for method, params in (("midtoken/unknown", {}), ("textDocument/inlineCompletion", _ASK)):
        assert (await both.exchange(method, params))["error"]["code"] == -32601
    assert both.editor.shown == []


async def test_initialize_of_another_form_is_refused_and_can_be_repeated(both: InProcess) -> None:
    params = {"processId": None, "rootUri": None, "capabilities": None}
    assert (await both.exchange("initialize", params))["error"]["code"] == -32602
    assert "capabilities" in (await both.exchange("initialize", params | {"capabilities": {}}))["result"]


async def test_a_request_before_initialize_or_after_shutdown_is_refused_and_a_notification_ignored(
    both: InProcess,
) -> None:
    document = {"uri": URI, "languageId": "python", "version": 0, "text": ""}
    for method in ("textDocument/inlineCompletion", "shutdown", "unknown"):
        assert (await both.exchange(method, _ASK))["error"]["code"] == -32002
    both.editor.send({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": document}})
    both.editor.send({"jsonrpc": "2.0", "method": "workspace/didChangeConfiguration", "params": {"settings": None}})
    await both.start()
    assert both.server.assistant.sessions == {}
    assert (await both.exchange("initialize", {"capabilities": {}}))["error"]["code"] == -32600
    assert "result" in await both.exchange("shutdown", None)
    for method in ("textDocument/inlineCompletion", "shutdown", "unknown"):
        assert (await both.exchange(method, _ASK))["error"]["code"] == -32600
    assert both.editor.shown == []


_ERROR = {"code": -32603, "message": "failed"}


@pytest.mark.parametrize("more", [{"result": None}, {"result": {"a": 1}}, {"error": _ERROR}, {"error": "text"}])
async def test_a_response_that_nobody_waits_for_is_ignored(more: dict[str, Any], both: InProcess) -> None:
    await both.start()
    both.editor.send({"jsonrpc": "2.0", "id": "unknown", **more})
    assert "result" in await both.exchange("shutdown", None)
    assert both.editor.shown == []


# Edits that cannot be read

_CHANGE = {"textDocument": {"uri": URI, "version": 1}}
_SPAN = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}
_LOST = (
    "midtoken: the editor sent an edit that cannot be read; "
    "there are no suggestions for this document until the editor sends its whole text"
)


@pytest.mark.parametrize(
    "params",
    [
        _CHANGE | {"contentChanges": [{"range": None, "text": "secret"}]},
        _CHANGE | {"contentChanges": [{"range": _SPAN}]},
        _CHANGE | {"contentChanges": [{"text": None}]},
        _CHANGE | {"contentChanges": [{"text": ["secret"]}]},
        _CHANGE | {"contentChanges": [{"range": _SPAN | {"end": {"line": 0, "character": 2**31}}, "text": "secret"}]},
        _CHANGE | {"contentChanges": "secret"},
        _CHANGE,
        {"textDocument": {"uri": URI}, "contentChanges": [{"text": "secret"}]},
        {"textDocument": {"uri": URI, "version": None}, "contentChanges": [{"text": "secret"}]},
        {"textDocument": {"uri": None, "version": 1}, "contentChanges": [{"text": "secret"}]},
        ["secret"],
        None,
    ],
)
async def test_after_an_edit_that_cannot_be_read_there_are_no_suggestions_until_the_whole_text_is_sent(
    both: InProcess, params: Any
) -> None:
    await both.start()
    both.editor.open("abc")
    waiting = both.editor.ask(0, 3)
    await wait_for(lambda: both.backend.streams != [])
    both.editor.send({"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params})
    assert await waiting is None
    both.editor.edit(0, 0, "x")
    assert await both.editor.ask(0, 1) is None
    both.editor.send({"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params})
    assert await both.editor.ask(0, 1) is None
    assert both.editor.shown == [_LOST]
    assert [report[:3] for report in both.editor.reports] == [(None, "ready", "ready"), (URI, "off", "out_of_sync")]
    both.editor.replace_all("again")
    await wait_for_text(both, "again")
    assert both.editor.shown == [_LOST]


@pytest.mark.parametrize(
    ("document", "is_lost"),
    [({"uri": "file:///project/other.py", "version": 1}, False), ({"uri": URI}, True), ({"uri": None}, True)],
)
async def test_an_edit_that_cannot_be_read_concerns_its_own_document_if_that_is_named(
    both: InProcess, document: dict[str, Any], is_lost: bool
) -> None:
    await both.start()
    both.editor.open("abc")
    params = {"textDocument": document, "contentChanges": None}
    both.editor.send({"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params})
    both.editor.edit(0, 0, "x")
    await wait_for(lambda: _find_text(both) == "xabc" or both.editor.shown != [])
    assert both.editor.shown == ([_LOST] if is_lost else [])


async def test_a_document_that_cannot_be_read_is_not_open(both: InProcess) -> None:
    await both.start()
    document = {"uri": URI, "languageId": "python", "version": 0, "text": None}
    both.editor.send({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": document}})
    both.editor.edit(0, 0, "x")
    assert await both.editor.ask(0, 0) is None
    assert both.editor.shown == ["midtoken: the editor refers to a document that is not open"]
    both.editor.open("again")
    await wait_for_text(both, "again")


async def test_a_message_that_is_no_json_may_have_been_an_edit(both: InProcess) -> None:
    await both.start()
    both.editor.open("abc")
    both.editor.send_body(b'{"jsonrpc": "2.0", "method": ')
    assert await both.editor.ask(0, 1) is None
    assert both.editor.shown == [_LOST]
