"""What requests tell of other open files."""

from pathlib import Path

import pytest
from lsprotocol import types

from inference.protocol.completion import Description, RelatedFile
from lsp_server.documents import Document
from lsp_server.guard import Guard
from lsp_server.open_files import find_path, list_pieces
from tests.support.lsp_in_process import InProcess
from tests.support.secret_forms import SECRETS, count_secret_bytes

_FOLDERS = ["file:///home/me/w%C3%B6rk", "file:///srv"]
_LINES = [f"line {number}\n" for number in range(200)]
_READER = Description(repository_format="qwen", context_tokens=2048)


def _open(text: str, name: str = "w%C3%B6rk/a/b.py") -> Document:
    item = types.TextDocumentItem(f"file:///home/me/{name}", "python", 1, text)
    return Document(item, types.PositionEncodingKind.Utf16)


def _edit(document: Document, line: int) -> None:
    place = types.Position(line, 0)
    document.apply(2, [types.TextDocumentContentChangePartial(range=types.Range(place, place), text="x")])


def _list(*documents: Document, max_bytes: int = 10_000, is_remote: bool = False) -> list[str]:
    return [each.text for each in list_pieces(documents, _FOLDERS, max_bytes, Guard(is_remote=is_remote))]


def test_a_piece_has_the_lines_around_the_last_edit_and_at_first_those_at_the_top() -> None:
    document = _open("".join(_LINES))
    assert _list(document) == ["".join(_LINES[:32])]
    _edit(document, 100)
    assert _list(document) == ["".join([*_LINES[68:100], "xline 100\n", *_LINES[101:132]])]


def test_pieces_end_before_the_one_for_which_there_is_no_room() -> None:
    assert _list(_open("é\r\n"), _open("12345"), _open("1"), max_bytes=7) == ["é\n"]
    assert _list(_open("12345"), _open("é\r\n"), max_bytes=8) == ["12345", "é\n"]


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
