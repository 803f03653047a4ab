"""What the user sees of excluded files and secrets, with a real LSP client and a backend that the test feeds."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from lsprotocol.types import InlineCompletionList

from lsp_server.guard import PLACEHOLDER
from lsp_server.no_suggestion import Reason
from tests.support.lsp_editor import URI, wait_for
from tests.support.lsp_in_process import InProcess, run_in_process
from tests.support.secret_forms import SECRETS

_NOTHING = InlineCompletionList(())
_WRONG_KIND = "setting exclude must be a list of texts, not 'secret.py'"
_SECRET = next(secret for secret in SECRETS if secret.form == "GitHub")


@pytest.mark.parametrize(
    ("exclude", "reason", "shown"),
    [
        (["/project/*.py"], "setting exclude: `/project/*.py`", []),
        ("secret.py", _WRONG_KIND, [f"midtoken: {_WRONG_KIND}; nothing is sent"]),
    ],
    ids=["rule", "setting of the wrong kind"],
)
async def test_an_excluded_document_is_logged_once_and_gets_suggestions_when_the_rule_is_gone(
    exclude: object, reason: str, shown: list[str], both: InProcess
) -> None:
    await both.start_with("x")
    both.editor.push_settings({"midtoken": {"exclude": exclude}})
    assert [await both.editor.ask(0, 1) for _ in range(3)] == [_NOTHING] * 3
    why = f"nothing of this file is sent: {reason}"
    assert both.editor.logged.count(f"excluded: file.py gets no suggestions: {why}") == 1
    assert (both.editor.reports[-1], both.editor.shown) == ((URI, "off", "excluded", why), shown)
    assert both.backend.streams == []
    both.editor.push_settings({"midtoken": {"exclude": ["secret.py"]}})
    assert (await both.ask_and_finish(0, 1, "y")).items


async def test_text_typed_ahead_needs_no_request_with_a_secret_above(both: InProcess) -> None:
    await both.start_with(f"{_SECRET.text}x = ")
    assert (await both.ask_and_finish(1, 4, "value")).items
    both.editor.edit(1, 4, "va")
    assert (await both.editor.ghost(1, 6)).insert_text == "value"
    assert [stream.request.prefix for stream in both.backend.streams] == [f'x = "{PLACEHOLDER}"\nx = ']


async def test_a_suggestion_replaces_the_documents_own_text(both: InProcess) -> None:
    await both.start_with(f"{_SECRET.text.rstrip()}; val")
    (item,) = (await both.ask_and_finish(0, len(_SECRET.text) + 4, "ue")).items
    assert (item.insert_text, item.range is not None) == ("value", True)


async def test_with_the_cursor_in_a_secret_there_is_no_suggestion_and_a_reason(both: InProcess) -> None:
    await both.start_with(_SECRET.text)
    assert await both.editor.ask(0, 12, is_invoked=True) == _NOTHING
    assert both.backend.streams == []
    assert sum("the cursor is in a secret" in line for line in both.editor.logged) == 1
    assert not any(_SECRET.secret in line for line in both.editor.logged)


@pytest.mark.parametrize(
    ("redacts", "is_remote", "sent"),
    [
        (True, True, PLACEHOLDER),
        (False, True, _SECRET.secret),
        (True, False, _SECRET.secret),
    ],
    ids=["to another machine", "by the setting", "on this machine"],
)
async def test_secrets_are_replaced_where_they_may_go_to_another_machine(
    redacts: bool, is_remote: bool, sent: str
) -> None:
    async with run_in_process(is_remote=is_remote) as both:
        await both.start_with(f'x = "{_SECRET.secret}"\ny', options={"redactSecrets": redacts})
        both.editor.ask(1, 1)
        assert (await both.find_stream()).request.prefix == f'x = "{sent}"\ny'


async def test_a_key_that_follows_the_suggestion_asks_about_no_other_file_and_reads_no_other_text(
    both: InProcess,
) -> None:
    await both.start_with("def first(): pass\nx = ", options={"prefetch": False})  # which a slow machine would begin
    assert (await both.ask_and_finish(1, 4, "value")).items
    called: set[tuple[str, str]] = set()
    sys.setprofile(lambda frame, *_: called.add((Path(frame.f_code.co_filename).stem, frame.f_code.co_name)))
    try:
        for version, typed in enumerate("valu", 4):
            both.editor.edit(1, version, typed)
            assert (await both.editor.ghost(1, version + 1)).insert_text == "value"
    finally:
        sys.setprofile(None)
    assert ("session", "find_text") in called
    assert ("assistant", "_build") not in called
    assert not {"ignore_rules", "other_files"} & {module for module, _ in called}
    assert not {"find_exclusions", "find_secrets"} & {name for _, name in called}


@pytest.mark.parametrize("name", ["workspaceFolders", "rootUri", "rootPath"])
async def test_a_pattern_counts_from_the_workspace_folder_on_however_it_is_named(
    name: str, both: InProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "c# 100%25?" / "project"
    sent = {"rootPath": str(folder), "rootUri": folder.as_uri()}.get(name, [{"uri": folder.as_uri(), "name": "a"}])
    capabilities: dict[str, Any] = {"textDocument": {"inlineCompletion": {}}}
    options = {"exclude": ["/private/"]}
    params = {"processId": None, "rootUri": None, "capabilities": capabilities, "initializationOptions": options}
    await both.exchange("initialize", params | {name: sent})
    both.editor.client.initialized(types.InitializedParams())
    for path, reason in (("private/a.py", Reason.EXCLUDED), ("a/private/a.py", None)):
        both.editor.uri = (folder / path).as_uri()
        both.editor.open("x")
        if reason is None:
            assert (await both.ask_and_finish(0, 1, "y")).items
        else:
            assert await asyncio.wait_for(both.editor.ask(0, 1), 5) == _NOTHING
    assert [stream.request.path for stream in both.backend.streams] == ["a/private/a.py"]


async def _refuse(both: InProcess, *_: object) -> None:
    """The next answers to workspace/configuration are errors."""

    def answer() -> None:
        raise ValueError

    both.editor.answer_configuration = answer


async def _be_silent(both: InProcess, settings: "asyncio.Future[object]") -> None:
    both.editor.answer_configuration = lambda: settings


@pytest.mark.parametrize("fail", [_refuse, _be_silent])
@pytest.mark.parametrize("is_later", [False, True])
async def test_nothing_is_sent_while_the_editor_does_not_answer_what_its_settings_are(
    fail: Callable[..., Awaitable[None]], is_later: bool, both: InProcess
) -> None:
    both.server.configuration_wait_s = 0.02
    settings = asyncio.get_running_loop().create_future()
    if is_later:
        await both.start_with("x")
        assert (await both.ask_and_finish(0, 1, "y")).items
        await fail(both, settings)
        both.editor.push_settings(None)
    else:
        await fail(both, settings)
        await both.start_with("x")
    await wait_for(lambda: both.editor.reports[-1:] != [] and both.editor.reports[-1][1:3] == ("off", "excluded"))
    assert "workspace/configuration" in both.editor.reports[-1][3]
    both.server.configuration_wait_s = 0.5
    both.editor.push_settings({"midtoken": {}})  # no answer either
    both.editor.replace_all("z")
    assert await both.editor.ask(0, 1) == _NOTHING
    assert len(both.backend.streams) == is_later
    both.server.configuration_wait_s = 0.02
    both.editor.answer_configuration = lambda: [None]  # it is asked again
    if not settings.done():
        settings.set_result([None])
    await wait_for(lambda: (URI, "ready") in [each[:2] for each in both.editor.reports])
    assert (await both.ask_and_finish(0, 1, "y")).items


async def test_of_several_answers_that_to_the_last_question_counts(both: InProcess) -> None:
    loop = asyncio.get_running_loop()
    answers = [loop.create_future(), loop.create_future()]
    waiting = iter(answers)
    both.editor.answer_configuration = lambda: next(waiting)
    await both.start_with("x")
    both.editor.push_settings(None)
    await wait_for(lambda: both.editor.num_configuration_requests == 2)
    answers[1].set_result([{"exclude": ["*.py"]}])
    await wait_for(lambda: both.editor.reports != [])
    answers[0].set_result([None])
    await both.exchange("unknown", {})
    assert await both.editor.ask(0, 1) == _NOTHING


async def test_a_document_has_an_id_that_its_path_does_not_tell(both: InProcess) -> None:
    ids = []
    async with run_in_process() as other:
        for each in (both, other):
            await each.start_with("x")
            each.editor.ask(0, 1)
            ids.append((await each.find_stream()).request.document)
    assert len({*ids, ""}) == 3
