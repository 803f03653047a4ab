"""What the user sees of excluded files and secrets, with a real LSP client and a backend that the test feeds."""

from collections.abc import AsyncIterator

import pytest
from lsprotocol.types import InlineCompletionList

from lsp_server.privacy.redaction import PLACEHOLDER
from tests.support.lsp_editor import wait_for
from tests.support.lsp_in_process import InProcess, run_in_process
from tests.support.private_files import SECRETS

_NOTHING = InlineCompletionList(())
_SECRET = next(secret for secret in SECRETS if secret.form == "GitHub")


@pytest.fixture
async def both() -> AsyncIterator[InProcess]:
    async with run_in_process() as both:
        yield both


async def test_an_excluded_document_is_logged_once_and_nothing_pops_up(both: InProcess) -> None:
    await both.start(options={"exclude": ["/project/*.py"]})
    both.editor.open("x")
    assert [await both.editor.ask(0, 1) for _ in range(3)] == [_NOTHING] * 3
    told = "excluded: file.py gets no suggestions: nothing of this file is sent: setting exclude: `/project/*.py`"
    assert (both.editor.logged.count(told), both.editor.shown) == (1, [])
    assert both.backend.streams == []


async def test_a_document_that_is_no_longer_excluded_gets_suggestions(both: InProcess) -> None:
    await both.start(options={"exclude": ["*.py"]})
    both.editor.open("x")
    assert await both.editor.ask(0, 1) == _NOTHING
    both.editor.push_settings({"midtoken": {"exclude": []}})
    answer = both.editor.ask(0, 1)
    await wait_for(lambda: both.backend.streams != [])
    both.backend.streams[0].finish("y")
    assert await answer is not None


async def test_text_typed_ahead_needs_no_request_with_a_secret_above(both: InProcess) -> None:
    await both.start()
    both.editor.open(f"{_SECRET.text}x = ")
    answer = both.editor.ask(1, 4)
    await wait_for(lambda: both.backend.streams != [])
    both.backend.streams[0].finish("value")
    assert await answer is not None
    both.editor.edit(1, 4, "va")
    item = await both.editor.ghost(1, 6)
    assert item.insert_text == "value"
    assert [stream.request.prefix for stream in both.backend.streams] == [f'token = "{PLACEHOLDER}"\nx = ']


async def test_a_suggestion_replaces_the_documents_own_text(both: InProcess) -> None:
    await both.start()
    both.editor.open(f"{_SECRET.text.rstrip()}; val")
    answer = both.editor.ask(0, len(_SECRET.text) + 4)
    await wait_for(lambda: both.backend.streams != [])
    both.backend.streams[0].finish("ue")
    result = await answer
    assert result is not None
    assert (result.items[0].insert_text, result.items[0].range is not None) == ("value", True)


async def test_with_the_cursor_in_a_secret_there_is_no_suggestion_and_a_reason(both: InProcess) -> None:
    await both.start()
    both.editor.open(_SECRET.text)
    assert await both.editor.ask(0, 12, is_invoked=True) == _NOTHING
    assert both.backend.streams == []
    assert sum("the cursor is in a secret" in line for line in both.editor.logged) == 1
    assert not any(_SECRET.secret in line for line in both.editor.logged)


async def test_secrets_are_sent_where_the_setting_says_so(both: InProcess) -> None:
    await both.start(options={"redactSecrets": False})
    both.editor.open(f"{_SECRET.text}x")
    both.editor.ask(1, 1)
    await wait_for(lambda: both.backend.streams != [])
    assert both.backend.streams[0].request.prefix == f"{_SECRET.text}x"
