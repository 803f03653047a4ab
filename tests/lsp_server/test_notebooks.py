"""Cells of a notebook: the code before the cursor's cell is its context, and the rules are those for the notebook."""

import pytest
from lsprotocol import types
from lsprotocol.types import NotebookCellKind, Position, Range

from tests.support.lsp_in_process import InProcess

_NOTEBOOK = "file:///project/file.ipynb"
_CODE, _MARKUP = NotebookCellKind.Code, NotebookCellKind.Markup
_CELLS = [
    ("a", _CODE, "python", "import os\nclass Node:\n    pass"),
    ("text", _MARKUP, "markdown", "# Nodes"),
    ("sql", _CODE, "sql", "select 1"),
    ("blank", _CODE, "python", "\n"),
    ("b", _CODE, "python", "x = 1\r\n"),
    ("c", _CODE, "python", "y = 2\nNod"),
    ("d", _CODE, "python", "class NodeAfter:\n    pass"),
]
_ABOVE = "import os\nclass Node:\n    pass\n\nx = 1\n\n"

_Cells = list[tuple[str, NotebookCellKind, str, str]]


class Notebook:
    """A notebook in the editor."""

    def __init__(self, both: InProcess, uri: str = _NOTEBOOK, cells: _Cells = _CELLS) -> None:
        self.both, self.uri, self.version = both, uri, 0
        both.editor.uri = self.cell("c")
        notebook = types.NotebookDocument(uri, "jupyter-notebook", 0, self.list_cells(cells))
        params = types.DidOpenNotebookDocumentParams(notebook, self.list_items(cells))
        both.editor.client.notebook_document_did_open(params)

    def cell(self, name: str) -> str:
        """The URI of a cell, as VS Code writes it in a remote window."""
        return f"vscode-notebook-cell://localhost%3A80/{self.uri.partition(':')[2].lstrip('/')}#{name}"

    def list_cells(self, cells: _Cells) -> list[types.NotebookCell]:
        return [types.NotebookCell(kind, self.cell(name)) for name, kind, _, _ in cells]

    def list_items(self, cells: _Cells) -> list[types.TextDocumentItem]:
        return [types.TextDocumentItem(self.cell(name), language, 0, text) for name, _, language, text in cells]

    def change(self, change: types.NotebookDocumentCellChanges) -> None:
        self.version += 1
        notebook = types.VersionedNotebookDocumentIdentifier(self.version, self.uri)
        params = types.DidChangeNotebookDocumentParams(notebook, types.NotebookDocumentChangeEvent(cells=change))
        self.both.editor.client.notebook_document_did_change(params)

    def restructure(
        self, start: int, delete_count: int, cells: _Cells, did_open: _Cells | None = None, *did_close: str
    ) -> None:
        array = types.NotebookCellArrayChange(start, delete_count, self.list_cells(cells))
        closed = [types.TextDocumentIdentifier(self.cell(name)) for name in did_close]
        structure = types.NotebookDocumentCellChangeStructure(array, self.list_items(did_open or []), closed)
        self.change(types.NotebookDocumentCellChanges(structure))

    def edit(self, name: str, line: int, text: str) -> None:
        """Inserts text at the start of a line of a cell."""
        place = Position(line, 0)
        edit = types.TextDocumentContentChangePartial(Range(place, place), text)
        document = types.VersionedTextDocumentIdentifier(self.version + 1, self.cell(name))
        content = types.NotebookDocumentCellContentChanges(document, [edit])
        self.change(types.NotebookDocumentCellChanges(text_content=[content]))

    async def find_prefix(self) -> str:
        """What is sent at the end of the cell `c`."""
        await self.both.ask_and_finish(1, 3, "")
        return self.both.backend.streams[-1].request.prefix


async def test_the_code_of_the_cells_before_is_context(both: InProcess) -> None:
    await both.start()
    Notebook(both)
    result = await both.ask_and_finish(1, 3, "e")
    request = both.backend.streams[0].request
    assert (request.prefix, request.suffix) == (_ABOVE + "y = 2\nNod", "")  # and no declaration of a cell
    assert result.items[0].range == Range(Position(1, 0), Position(1, 3))


async def test_the_context_follows_what_is_done_to_the_cells(both: InProcess) -> None:
    await both.start()
    notebook, own = Notebook(both), "y = 2\nNod"
    assert await notebook.find_prefix() == _ABOVE + own
    notebook.edit("a", 1, "import re\n")
    assert await notebook.find_prefix() == _ABOVE.replace("os\n", "os\nimport re\n") + own
    new: _Cells = [("new", _CODE, "python", "z = 3")]
    notebook.restructure(1, 2, new, new, "text", "sql")
    assert (await notebook.find_prefix()).endswith("    pass\n\nz = 3\n\nx = 1\n\n" + own)
    notebook.restructure(0, 5, [_CELLS[5], *new])  # moved to the top
    assert await notebook.find_prefix() == own
    notebook.restructure(0, 2, [*new, _CELLS[5]])
    assert await notebook.find_prefix() == "z = 3\n\n" + own
    notebook.change(types.NotebookDocumentCellChanges(data=[types.NotebookCell(_MARKUP, notebook.cell("new"))]))
    notebook.edit("c", 0, "w\n")
    assert await notebook.find_prefix() == "w\ny ="


@pytest.mark.parametrize(
    ("uri", "exclude", "is_sent"),
    [
        (_NOTEBOOK, "*.py", True),
        (_NOTEBOOK, "file.ipynb", False),
        (_NOTEBOOK, "/project/", False),
        ("untitled:Untitled-1.ipynb?jupyter-notebook", "*.ipynb", False),
        ("untitled:Untitled-1.ipynb?jupyter-notebook", "*.md", True),
        ("vscode-remote://ssh/file.ipynb", "*.md", False),
    ],
)
async def test_the_rules_are_those_for_the_notebook(both: InProcess, uri: str, exclude: str, is_sent: bool) -> None:
    await both.start(options={"exclude": [exclude]})
    Notebook(both, uri)
    answer = both.editor.ask(1, 3)
    if is_sent:
        (await both.find_stream()).finish("e")
    result = await answer
    assert result is not None
    assert (len(result.items) == 1, both.backend.streams != []) == (is_sent, is_sent)


async def test_secrets_of_other_cells_are_replaced(both: InProcess) -> None:
    await both.start()
    secret = "ghp" + "_q7Rk2mZx9Lw4Tn8Vb3Yc6Hd1Jf5Gs0PaEuQi"
    notebook = Notebook(both, cells=[("a", _CODE, "python", f'token = "{secret}"'), *_CELLS[5:]])
    assert await notebook.find_prefix() == 'token = "REDACTED"\n\ny = 2\nNod'


@pytest.mark.parametrize("names", [(), ("a", "text", "sql", "blank", "b", "c", "d")], ids=["none is listed", "all are"])
async def test_with_a_notebook_its_cells_are_closed(names: tuple[str, ...], both: InProcess) -> None:
    await both.start()
    notebook = Notebook(both)
    cells = [types.TextDocumentIdentifier(notebook.cell(name)) for name in names]
    params = types.DidCloseNotebookDocumentParams(types.NotebookDocumentIdentifier(_NOTEBOOK), cells)
    both.editor.client.notebook_document_did_close(params)
    assert await both.editor.ask(1, 3) is None
    assert (both.server.assistant.sessions, both.backend.streams) == ({}, [])
