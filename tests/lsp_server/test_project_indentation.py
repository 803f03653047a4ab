"""The indentation of a new file is that of its project."""

from pathlib import Path

import pytest
from lsprotocol.types import PositionEncodingKind, TextDocumentItem

from lsp_server.documents import Document
from lsp_server.project_indentation import find_project_unit
from tests.support.lsp_editor import URI
from tests.support.lsp_in_process import InProcess

_TABS = "class A:\n\tdef f(self):\n\t\treturn 1\n"
_TWO = _TABS.replace("\t", "  ")


def _open(uri: str, text: str = "", language: str = "python") -> Document:
    return Document(TextDocumentItem(uri, language, 0, text), PositionEncodingKind.Utf16)


@pytest.mark.parametrize(
    ("files", "language", "others", "unit"),
    [
        ({".editorconfig": "root = true\n[*.py]\nindent_style = tab\n", "b.py": _TWO}, "python", [_TWO], "\t"),
        ({".editorconfig": "root = true\n[*]\nindent_style = space\nindent_size = 2\n"}, "python", [_TABS], "  "),
        ({".editorconfig": "[*.js]\nindent_style = tab\n", "b.py": _TWO}, "python", [], "  "),
        ({"b.py": _TWO}, "python-ts", [_TABS, _TABS], "\t"),
        ({"b.py": _TABS, "c.js": _TWO}, "python", [], "\t"),
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
    opened = [_open(f"untitled:{number}", text) for number, text in enumerate(others)]
    assert find_project_unit(_open((tmp_path / "a.py").as_uri(), language=language), opened) == unit


async def test_a_block_in_a_new_file_has_the_indentation_of_the_open_ones(both: InProcess) -> None:
    both.editor.uri = "file:///project/other.py"
    await both.start_with(_TABS)
    both.editor.uri = URI
    both.editor.open("def f():")
    (item,) = (await both.ask_and_finish(0, 8, "\n    if x:\n        return 1")).items
    assert item.insert_text == "\n\tif x:\n\t\treturn 1"
