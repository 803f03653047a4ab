"""Follows the notebooks in the editor, as LSP 3.17 synchronizes them: each cell is a document of the server."""

from collections.abc import Callable

from lsprotocol import types

from lsp_server.assistant import Assistant
from lsp_server.documents import Notebook


class Notebooks:
    """Applies what the editor tells of its notebooks to the open documents."""

    def __init__(self, assistant: Assistant, open_cell: Callable[[types.TextDocumentItem, Notebook], None]) -> None:
        self._assistant = assistant
        self._open_cell = open_cell
        self._open: dict[str, Notebook] = {}  # by URI

    def open(self, params: types.DidOpenNotebookDocumentParams) -> None:
        """notebookDocument/didOpen."""
        uri, cells = params.notebook_document.uri, list(params.notebook_document.cells)
        notebook = self._open[uri] = Notebook(uri, cells)
        for item in params.cell_text_documents:
            self._open_cell(item, notebook)

    def change(self, params: types.DidChangeNotebookDocumentParams) -> None:
        """notebookDocument/didChange: other cells, another order or kind of cells, or other text in them."""
        uri, change = params.notebook_document.uri, params.change.cells or types.NotebookDocumentCellChanges()
        notebook = self._open.setdefault(uri, Notebook(uri, []))
        if change.structure is not None:
            array = change.structure.array
            notebook.cells[array.start : array.start + array.delete_count] = array.cells or []
            for closed in change.structure.did_close or []:
                self._assistant.close(closed.uri)
            for item in change.structure.did_open or []:
                self._open_cell(item, notebook)
        changed = {cell.document: cell for cell in change.data or []}
        notebook.cells = [changed.get(cell.document, cell) for cell in notebook.cells]
        for edit in change.text_content or []:
            self._assistant.edit(edit.document.uri, edit.document.version, edit.changes)

    def close(self, params: types.DidCloseNotebookDocumentParams) -> None:
        """notebookDocument/didClose. The notebook's cells are closed, whether the editor lists them or not."""
        notebook = self._open.pop(params.notebook_document.uri, Notebook("", []))
        for uri in [cell.uri for cell in params.cell_text_documents] + [*notebook.documents]:
            self._assistant.close(uri)
