"""Snoozing, and turning suggestions off in a document, a language or a folder, as the commands do."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from tests.support.lsp_editor import URI, wait_for
from tests.support.lsp_in_process import InProcess


async def _run(both: InProcess, command: str, *arguments: Any) -> Any:
    params = types.ExecuteCommandParams(f"midtoken.{command}", list(arguments) if arguments else None)
    return await both.editor.client.workspace_execute_command_async(params)


async def _list_titles(both: InProcess) -> list[str]:
    return [each["title"] for each in await _run(both, "listCommands", URI)]


async def _is_hidden(both: InProcess, is_invoked: bool = False) -> bool:
    """True if the answer makes the editor hide what it shows."""
    answer = await both.editor.ask(0, 1, is_invoked=is_invoked)
    return answer is not None and not answer.items


def _find_last_report(both: InProcess) -> Any:
    return both.editor.reports[-1] if both.editor.reports else None


async def test_a_snooze_sends_nothing_unless_a_person_asks_and_ends_by_itself(both: InProcess) -> None:
    await both.start_with("x")
    await _run(both, "snooze", 2)
    await wait_for(lambda: _find_last_report(both) == (None, "off", "snoozed", "snoozed for 2 minutes"))
    num_prefetches = len(both.backend.prefetches)  # a slow machine begins one before the snooze
    await asyncio.sleep(0.4)  # longer than a cursor must rest
    assert await _is_hidden(both)
    assert (both.backend.streams, len(both.backend.prefetches)) == ([], num_prefetches)
    asked = both.editor.ask(0, 1, is_invoked=True)
    (await both.find_stream()).finish("z")
    (await both.find_stream(1)).finish()
    answer = await asked
    assert answer is not None
    assert answer.items[0].insert_text == "xz"

    both.server.quiet.minute_s = 0.01
    await _run(both, "snooze", 2)
    await wait_for(lambda: _find_last_report(both)[2] == "ready")
    minutes = [report[3] for report in both.editor.reports if report[2] == "snoozed"]
    assert minutes[-1] == "snoozed for 1 minute"
    assert not await _is_hidden(both)


async def test_a_request_that_waits_is_not_answered_after_a_snooze(both: InProcess) -> None:
    await both.start_with("x")
    answer = both.editor.ask(0, 1)
    await both.find_stream()
    await _run(both, "snooze")
    assert await answer is None


async def test_a_snooze_ends_by_command_and_hides_no_error(both: InProcess) -> None:
    await both.start_with("x")
    await _run(both, "snooze")
    asked = both.editor.ask(0, 1, is_invoked=True)
    (await both.find_stream()).fail(RuntimeError("a defect"))
    await asked
    assert _find_last_report(both)[2] == "snoozed"
    await _run(both, "wake")
    await wait_for(lambda: _find_last_report(both)[1] == "error")


@pytest.mark.parametrize("kind", ["document", "language", "folder"])
async def test_where_suggestions_are_turned_off_nothing_is_sent(kind: str, both: InProcess) -> None:
    await both.start_with("x")
    await _run(both, "toggle", kind, URI)
    names = {"document": "this file", "language": "python files", "folder": "the folder project"}
    off = (URI, "off", "turned_off", f"you turned suggestions off in {names[kind]}")
    await wait_for(lambda: _find_last_report(both) == off)
    num_prefetches = len(both.backend.prefetches)
    assert await _is_hidden(both, is_invoked=True)
    assert f"Turn suggestions on in {names[kind]}" in await _list_titles(both)
    both.editor.close()
    both.editor.open("y")
    assert await _is_hidden(both)
    assert (both.backend.streams, len(both.backend.prefetches)) == ([], num_prefetches)
    await _run(both, "toggle", kind)
    assert (await both.ask_and_finish(0, 1, "z")).items != []


async def test_a_folder_that_is_off_contains_others(both: InProcess) -> None:
    await both.start_with("x")
    await _run(both, "toggle", "folder")
    both.editor.uri = URI.replace("/file.py", "/inner/file.py")
    both.editor.open("x")
    assert await _is_hidden(both)
    assert (await _list_titles(both))[-1] == "Turn suggestions on in the folder project"
    await _run(both, "toggle", "folder")
    assert (await both.ask_and_finish(0, 1, "z")).items != []


async def test_the_folder_is_that_of_the_workspace(both: InProcess, tmp_path: Path) -> None:
    both.editor.uri = (tmp_path / "a" / "b.py").as_uri()
    await both.start_with("x", None, None, "editor", tmp_path)
    await _run(both, "toggle", "folder")
    await wait_for(lambda: tmp_path.name in both.editor.shown[-1])


async def test_a_menu_offers_what_can_be_done_now(both: InProcess) -> None:
    await both.start()
    snoozes = [f"Snooze for {minutes} minutes" for minutes in (5, 15, 60)]
    assert await _list_titles(both) == snoozes
    both.editor.open("x")
    scopes = [f"Turn suggestions off in {name}" for name in ("this file", "python files", "the folder project")]
    assert await _list_titles(both) == [*snoozes, *scopes]
    await _run(both, "snooze", 5.0)
    assert await _list_titles(both) == ["End the snooze (5 minutes left)", *scopes]
    for command in await _run(both, "listCommands"):
        await both.editor.client.workspace_execute_command_async(
            types.ExecuteCommandParams(command["command"], command.get("arguments"))
        )
    assert await _list_titles(both) == [*snoozes, *(each.replace("off", "on") for each in scopes)]


@pytest.mark.parametrize(
    ("command", "arguments", "named"),
    [
        ("snooze", [-1], "a whole number from 0 to 1440"),
        ("snooze", [True], "a whole number from 0 to 1440"),
        ("snooze", ["5"], "a whole number from 0 to 1440"),
        ("snooze", [[5]], "a whole number from 0 to 1440"),
        ("snooze", [5, 5], "a whole number from 0 to 1440"),
        ("toggle", ["galaxy"], "document, language or folder"),
        ("toggle", ["document", "file:///other.py"], "an open document"),
        ("toggle", ["document", {}], "an open document"),
    ],
)
async def test_wrong_arguments_are_refused_by_name(
    command: str, arguments: list[Any], named: str, both: InProcess
) -> None:
    await both.start_with("x")
    params = {"command": f"midtoken.{command}", "arguments": arguments}
    response = await both.exchange("workspace/executeCommand", params)
    assert named in response["error"]["message"]
    assert both.editor.shown == []
