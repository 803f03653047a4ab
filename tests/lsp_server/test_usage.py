"""What editors say about suggestions is counted."""

from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from lsp_server.features import COUNTERS, DID_ACCEPT_PART, DID_SHOW
from tests.support.lsp_in_process import InProcess


async def _count(both: InProcess) -> Any:
    return await both.editor.client.workspace_execute_command_async(types.ExecuteCommandParams(COUNTERS))


def _notify(client: LanguageClient, method: str, params: Any) -> None:
    client.protocol.notify(method, params)


async def test_what_is_shown_and_accepted_is_counted(both: InProcess) -> None:
    await both.start_with("return ")
    (item,) = (await both.ask_and_finish(0, 7, "x")).items
    assert item.command is not None
    shown = {"item": {"insertText": "x", "command": {"title": "", "command": "", "arguments": [1]}}}
    for _ in range(2):
        _notify(both.editor.client, DID_SHOW, shown)
    _notify(both.editor.client, DID_ACCEPT_PART, shown | {"acceptedLength": 5})
    accepted = types.ExecuteCommandParams(item.command.command, item.command.arguments)
    await both.editor.client.workspace_execute_command_async(accepted)
    counts = await _count(both)
    assert (counts["suggested"], counts["shown"], counts["accepted"]) == (1, 1, 1)
    assert (counts["acceptedParts"], counts["acceptedUnits"]) == (1, 5)


async def test_messages_of_another_form_count_nothing(both: InProcess) -> None:
    await both.start()
    arguments = {"item": {"command": {"arguments": ["x"]}}}
    params: Any
    for params in ({}, None, {"item": None}, arguments, {"acceptedLength": "x"}, []):
        _notify(both.editor.client, DID_SHOW, params)
        _notify(both.editor.client, DID_ACCEPT_PART, params)
    counts = await _count(both)
    assert (counts["shown"], counts["acceptedParts"], both.editor.shown) == (0, 0, [])


async def test_silences_are_counted_by_their_reason(both: InProcess) -> None:
    await both.start_with("value")
    await both.editor.ask(0, 2)
    assert (await _count(both))["silences"]["inside_word"] == 1
