"""The indentation of a new file is that of its project."""

import os
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


_TAB = "[*]\nindent_style = tab\n"


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (f"root = true\nno option\n{_TAB}", "\t"),
        (f"root = true\n{_TAB}[[z-a]]\nindent_style = space\n", "\t"),
        (f"root = true\n{_TAB}[{{a,b{{1..3}}}}*]\nindent_style = space\n", "\t"),
        (f"root = true\n{_TAB}[{'*' * 60}x]\nindent_style = space\n", "\t"),
        (f"root = true\n{_TAB}[{'{*a*,*a}' * 40}x]\nindent_style = space\n", "\t"),
        (f"root = true\n{_TAB}[*.py]\nindent_style = unset\n", None),
        ("root = true\n[*]\nindent_style = Space\nindent_size = tab\ntab_width = 3\n", "   "),
        *((f"root = true\n[*]\nindent_style = space\nindent_size = {size}\n", None) for size in ("9" * 12, "0", "²")),
        ("root = true\n" + "#" * 100_000, None),
        (b"root = true\n# \xe9\n", None),
    ],
)
def test_what_is_wrong_in_an_editorconfig_is_skipped(text: str | bytes, unit: str | None, tmp_path: Path) -> None:
    (tmp_path / ".editorconfig").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert find_project_unit(_open((tmp_path / "aaaaaaaaaaaaaaaaaaaaaaaaaaaa.py").as_uri()), []) == unit


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".editorconfig")
    assert find_project_unit(_open((tmp_path / "a.**").as_uri()), []) is None


async def test_a_block_in_a_new_file_has_the_indentation_of_the_open_ones(both: InProcess) -> None:
    both.editor.uri = "file:///project/other.py"
    await both.start_with(_TABS)
    both.editor.uri = URI
    both.editor.open("def f():")
    (item,) = (await both.ask_and_finish(0, 8, "\n    if x:\n        return 1")).items
    assert item.insert_text == "\n\tif x:\n\t\treturn 1"
