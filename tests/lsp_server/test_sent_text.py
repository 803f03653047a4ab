"""What reaches the completion server of excluded files and of secrets, and what the editor is told: nothing of them."""

import asyncio
import builtins
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.lsp_editor import build_capabilities
from tests.support.lsp_in_process import InProcess
from tests.support.private_files import EXCLUDED_FILES, ExcludedFile
from tests.support.secret_forms import SECRETS, count_secret_bytes


@pytest.fixture
async def both(both: InProcess) -> InProcess:
    """Each request is answered with one line."""
    both.backend.answer = "x"
    return both


def _list_sent(both: InProcess) -> list[str]:
    """What the backend has got."""
    requests = [stream.request for stream in both.backend.streams + both.backend.prefetches]
    return [text for request in requests for text in (request.prefix, request.suffix)]


async def _type_into(both: InProcess, path: Path, text: str) -> None:
    """Opens a document, asks at some cursors of each line, adds text at its end and asks there."""
    both.editor.uri = path.as_uri()
    both.editor.open(text + "\n\n\ndef after():\n    return 1\n")
    lines = text.split("\n")
    for number, line in enumerate(lines):
        for character in range(0, len(line) + 1, 1 + len(line) // 2):
            await _ask(both, number, character)
    for character, char in enumerate("val"):
        both.editor.edit(len(lines) - 1, character, char)
        await _ask(both, len(lines) - 1, character + 1)


async def _ask(both: InProcess, line: int, character: int) -> None:
    """Asks until there is an answer. While the rules are not known, there is none."""
    while await both.editor.ask(line, character) is None:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("case", EXCLUDED_FILES, ids=lambda case: case.name)
async def test_no_byte_of_an_excluded_file_is_sent_or_said(case: ExcludedFile, tmp_path: Path, both: InProcess) -> None:
    folder = tmp_path / "case"  # its name may be said
    document = case.build(folder)
    await both.start(build_capabilities(), {"exclude": [*case.setting]}, "editor", folder)
    await _type_into(both, document, document.read_text())
    assert _list_sent(both) == []
    await _type_into(both, folder / case.harmless, (folder / case.harmless).read_text())
    assert _list_sent(both) != [], "a file beside it is not excluded"
    assert count_secret_bytes([*_list_sent(both), *both.said], [case.marker]) == 0
    assert any(f"excluded: {document.name} gets no suggestions: " in message for message in both.said)


async def test_the_thread_of_the_keys_looks_at_no_file_and_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both: InProcess
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

    for name in ("stat", "lstat", "readlink"):
        record(os, name)
    record(builtins, "open")
    record(subprocess, "Popen")
    await both.start(build_capabilities(), None, "editor", tmp_path / "case")
    looked.clear()  # what was for the start
    for path in (document, document.with_name("open.py")):
        await _type_into(both, path, "import os\nvalue = 1\n")
    assert _list_sent(both) != []
    assert {"stat", "lstat", "open", "Popen"} <= looked.keys()
    assert set().union(*looked.values()) <= {"midtoken-rules", "asyncio"}


async def test_no_byte_of_a_secret_is_sent_or_said(tmp_path: Path, both: InProcess) -> None:
    await both.start(build_capabilities(), None, "editor", tmp_path)
    for number, secret in enumerate(each for each in SECRETS if len(each.secret) < 1000):
        num_before = len(both.backend.streams)
        await _type_into(both, tmp_path / f"open{number}.py", f"import os\n{secret.text}value = 1\n")
        assert len(both.backend.streams) > num_before, secret.form
    lines = {line for text in [*_list_sent(both), *both.said] for line in text.split("\n")}
    assert [each.form for each in SECRETS if count_secret_bytes(["\n".join(lines)], [each.secret])] == []


def test_a_secret_that_is_sent_is_counted() -> None:
    assert count_secret_bytes(["x = 12345678 9"], ["0123456789"]) == 8
