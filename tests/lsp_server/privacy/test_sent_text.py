"""What reaches the completion server of excluded files and of secrets, and what the editor is told: nothing of them."""

import asyncio
import os
import subprocess
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from lsp_server.privacy.guard import Cleared
from tests.support.lsp_editor import build_capabilities
from tests.support.lsp_fakes import FedBackend
from tests.support.lsp_in_process import InProcess, run_in_process
from tests.support.private_files import EXCLUDED_FILES, ExcludedFile
from tests.support.secret_forms import SECRETS, count_secret_bytes

_AFTER = "\n\n\ndef after():\n    return 1\n"


class _RecordingBackend(FedBackend):
    """Answers every request with one line."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    async def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        self.sent.append(f"{request.value.prefix}|{request.value.suffix}")
        yield CompletionChunk("x", finish_reason=FinishReason.EXTENT, stats=CompletionStats())


@asynccontextmanager
async def _run(folder: Path, exclude: Sequence[str] = ()) -> AsyncIterator[tuple[InProcess, _RecordingBackend]]:
    """A server for one workspace folder."""
    async with run_in_process() as both:
        backend = both.backend = _RecordingBackend()
        workspace = [types.WorkspaceFolder(folder.as_uri(), folder.name)]
        params = types.InitializeParams(
            build_capabilities("utf-32"), workspace_folders=workspace, initialization_options={"exclude": [*exclude]}
        )
        await both.editor.client.initialize_async(params)
        both.editor.client.initialized(types.InitializedParams())
        yield both, backend


async def _type_into(both: InProcess, path: Path, text: str) -> None:
    """Opens a document, asks at some cursors of each line, adds text at its end and asks there."""
    client, uri = both.editor.client, path.as_uri()
    item = types.TextDocumentItem(uri, "python", 0, text + _AFTER)
    client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    lines = text.split("\n")
    for number, line in enumerate(lines):
        for character in range(0, len(line) + 1, 1 + len(line) // 4):
            await _ask(both, uri, types.Position(number, character))
    for version, char in enumerate("value", 1):
        place = types.Position(len(lines) - 1, version - 1)
        change = types.TextDocumentContentChangePartial(types.Range(place, place), char)
        document = types.VersionedTextDocumentIdentifier(version, uri)
        client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))
        await _ask(both, uri, types.Position(place.line, version))


async def _ask(both: InProcess, uri: str, position: types.Position) -> None:
    """Asks until there is an answer. While the rules are not known, there is none."""
    context = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic)
    params = types.InlineCompletionParams(context, types.TextDocumentIdentifier(uri), position)
    while await both.editor.client.text_document_inline_completion_async(params) is None:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("case", EXCLUDED_FILES, ids=lambda case: case.name)
async def test_no_byte_of_an_excluded_file_is_sent_or_said(case: ExcludedFile, tmp_path: Path) -> None:
    folder = tmp_path / "case"  # its name may be said
    document = case.build(folder)

    async with _run(folder, case.setting) as (both, backend):
        await _type_into(both, document, document.read_text())
        assert backend.sent == []
        await _type_into(both, folder / case.harmless, (folder / case.harmless).read_text())

        assert backend.sent, "a file beside it is not excluded"
        assert count_secret_bytes([*backend.sent, *both.said], [case.marker]) == 0
        assert any("excluded: " in message for message in both.said)


async def test_the_thread_of_the_keys_looks_at_no_file_and_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = EXCLUDED_FILES[0].build(tmp_path / "case")
    (tmp_path / ".midtokenignore").write_text("other.py\n")
    looked: dict[str, set[str]] = {}

    def record(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def recorded(*arguments: Any, **named: Any) -> Any:
            looked.setdefault(name, set()).add(threading.current_thread().name.partition("_")[0])
            return function(*arguments, **named)

        monkeypatch.setattr(owner, name, recorded)

    for name in ("stat", "lstat", "readlink", "open"):
        record(os, name)
    record(subprocess, "Popen")
    async with _run(tmp_path / "case") as (both, backend):
        looked.clear()  # what was for the start
        for path in (document, document.with_name("open.py")):
            await _type_into(both, path, "import os\nvalue = 1\n")
    assert len(backend.sent) > 0
    assert {"stat", "lstat", "open", "Popen"} <= looked.keys()
    assert set().union(*looked.values()) <= {"midtoken-rules", "midtoken-secrets"}


async def test_no_byte_of_a_secret_is_sent_or_said(tmp_path: Path) -> None:
    async with _run(tmp_path) as (both, backend):
        for number, secret in enumerate(each for each in SECRETS if len(each.secret) < 1000):
            num_before = len(backend.sent)
            await _type_into(both, tmp_path / f"open{number}.py", f"import os\n{secret.text}value = 1\n")

            assert len(backend.sent) > num_before, secret.form
            assert count_secret_bytes([*backend.sent, *both.said], [secret.secret]) == 0, secret.form


def test_a_secret_that_is_sent_is_counted() -> None:
    assert count_secret_bytes(["x = 12345678 9"], ["0123456789"]) == 8
