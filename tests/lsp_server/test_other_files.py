"""What requests tell of other open files, and what those say of a new one."""

import asyncio
import os
import threading
from pathlib import Path

import pytest
from lsprotocol import types

from inference.protocol.completion import Description, RelatedFile
from lsp_server import assistant
from lsp_server.documents import Document
from lsp_server.guard import Guard
from lsp_server.other_files import find_folder_unit, find_path, find_project_unit, list_pieces
from tests.support.lsp_editor import URI
from tests.support.lsp_in_process import InProcess
from tests.support.secret_forms import SECRETS, count_secret_bytes

_FOLDERS = ["file:///home/me/w%C3%B6rk", "file:///srv"]
_LINES = [f"line {number}\n" for number in range(200)]
_READER = Description(repository_format="qwen", context_tokens=2048)


def _open(text: str, name: str = "w%C3%B6rk/a/b.py") -> Document:
    return Document(types.TextDocumentItem(f"file:///home/me/{name}", "python", 1, text))


def _edit(document: Document, line: int) -> None:
    place = types.Position(line, 0)
    document.apply([types.TextDocumentContentChangePartial(range=types.Range(place, place), text="x")])


def _list(*documents: Document, max_bytes: int = 10_000, is_remote: bool = False) -> list[str]:
    return [each.text for each in list_pieces(documents, _FOLDERS, max_bytes, Guard(is_remote=is_remote))]


def test_a_piece_has_the_lines_around_the_last_edit_and_at_first_those_at_the_top() -> None:
    document = _open("".join(_LINES))
    assert _list(document) == ["".join(_LINES[:32])]
    _edit(document, 100)
    assert _list(document) == ["".join([*_LINES[68:100], "xline 100\n", *_LINES[101:132]])]


def test_a_document_without_room_hides_no_other_one() -> None:
    assert _list(_open("é\r\n"), _open("12345"), _open("1"), max_bytes=7) == ["é\n", "1"]
    assert _list(_open("12345"), _open("é\r\n"), max_bytes=8) == ["12345", "é\n"]


def test_of_long_lines_there_are_fewer_around_the_edit() -> None:
    lines = [f"{number:03}{'x' * 36}\n" for number in range(200)]
    document = _open("".join(lines))
    assert _list(document, max_bytes=1792) == ["".join(lines[:32])]
    _edit(document, 100)
    assert _list(document, max_bytes=1792) == ["".join([*lines[84:100], f"x{lines[100]}", *lines[101:116]])]
    assert _list(document, max_bytes=100) == []


@pytest.mark.parametrize(
    ("name", "path"), [("w%C3%B6rk/a/b.py", "a/b.py"), ("w%C3%B6rker/b.py", "b.py"), ("b.py", "b.py")]
)
def test_a_path_begins_in_the_workspace_folder(name: str, path: str) -> None:
    assert find_path(f"file:///home/me/{name}", _FOLDERS) == path


def test_no_part_of_a_secret_at_the_edge_of_a_piece_is_sent_to_another_machine() -> None:
    for secret in SECRETS:
        for num_before in (31, 30):
            document = _open("\n" * num_before + secret.text + "\n" * 40)
            found = _list(document, is_remote=True)
            assert count_secret_bytes(found, secret.secret.split("\n"), min_chars=6) == 0, secret.form


async def test_a_model_of_several_files_is_told_of_the_others_that_may_be_sent(both: InProcess, tmp_path: Path) -> None:
    both.backend.description = _READER
    names = {"main.py": "python", "used.py": "python", "new.py": "python", "page.css": "css", ".env": "python"}
    both.editor.uri = (tmp_path / "main.py").as_uri()
    await both.start(None, None, "editor", tmp_path)
    for name, language in names.items():
        (tmp_path / name).touch()
        item = types.TextDocumentItem((tmp_path / name).as_uri(), language, 1, f"# {name}\n")
        both.editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    await both.ask_and_finish(1, 0, "")
    request = both.backend.streams[0].request
    assert request.path == "main.py"
    assert request.related == (RelatedFile("new.py", "# new.py\n"), RelatedFile("used.py", "# used.py\n"))


@pytest.mark.parametrize("description", [Description(context_tokens=8192), Description(repository_format="qwen")])
async def test_another_model_and_one_with_a_small_window_are_told_of_none(
    description: Description, both: InProcess
) -> None:
    both.backend.description = description
    await both.start_with("a = 1\n")
    item = types.TextDocumentItem("file:///other.py", "python", 1, "b = 2\n")
    both.editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    await both.ask_and_finish(1, 0, "")
    assert both.backend.streams[0].request.related == ()


_WITH_TABS = "class A:\n\tdef f(self):\n\t\treturn 1\n"
_WITH_TWO = _WITH_TABS.replace("\t", "  ")


@pytest.mark.parametrize(
    ("files", "language", "others", "unit"),
    [
        ({"b.py": _WITH_TWO}, "python-ts", [_WITH_TABS, _WITH_TABS], "\t"),
        ({"b.py": _WITH_TABS, "c.js": _WITH_TWO}, "python", [], "\t"),
        ({}, "go", [], "\t"),
        ({}, "makefile", [], "\t"),
        ({}, "python", [], None),
    ],
)
def test_the_unit_of_a_new_file_is_that_of_its_project(
    files: dict[str, str], language: str, others: list[str], unit: str | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    items = [types.TextDocumentItem(f"untitled:{number}", "python", 0, text) for number, text in enumerate(others)]
    new = Document(types.TextDocumentItem((tmp_path / "a.py").as_uri(), language, 0, ""))
    assert find_project_unit(new, map(Document, items), find_folder_unit(new.uri)) == unit


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "b.py")
    assert find_folder_unit((tmp_path / "a.py").as_uri()) is None


async def test_a_suggestion_does_not_wait_for_the_files_of_a_slow_folder(
    both: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_answer = list[str](), threading.Event()

    def find_slowly(uri: str) -> str:
        asked.append(uri)
        may_answer.wait(20)
        return "\t"

    monkeypatch.setattr(assistant, "find_folder_unit", find_slowly)
    await both.start_with("def f():")
    (item,) = (await both.ask_and_finish(0, 8, "\n    return 1")).items
    assert item.insert_text == "\n    return 1"
    may_answer.set()
    await asyncio.wait([unit for each in both.server.assistant.sessions.values() if (unit := each.folder_unit)])
    assert (await both.editor.ghost(0, 8)).insert_text == "\n\treturn 1"
    assert asked == [URI]


async def test_a_block_in_a_new_file_has_the_indentation_of_the_open_ones(both: InProcess) -> None:
    both.editor.uri = "file:///project/other.py"
    await both.start_with(_WITH_TABS)
    both.editor.uri = URI
    both.editor.open("def f():")
    (item,) = (await both.ask_and_finish(0, 8, "\n    if x:\n        return 1")).items
    assert item.insert_text == "\n\tif x:\n\t\treturn 1"
