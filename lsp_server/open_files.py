"""What a request tells of other open files: lines around the last edit in each of them, in which the next names are.

Only a model that was trained on several files in one text, and reads enough of it, gets them. Declarations of a whole
project, from an index, were measured beside them and beside nothing (docs/measured.md).
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

from pygls.uris import to_fs_path

from inference.protocol.completion import RelatedFile
from lsp_server.context import clean
from lsp_server.documents import Document
from lsp_server.guard import Guard

_LINES = 32  # on each side of the last edit
_MARGIN_LINES = 4  # beyond them, where the rest of a secret may be


def list_pieces(
    documents: Sequence[Document], folders: Sequence[str], max_bytes: int, guard: Guard
) -> tuple[RelatedFile, ...]:
    """Returns a piece of each document, the first ones first, as long as there is room. `folders`: see `find_path`.

    While one document is edited, those of the others stay, so the model has them in its cache.
    """
    pieces = list[RelatedFile]()
    for document in documents:
        text = _cut_piece(document, guard)
        max_bytes -= len(text.encode())
        if max_bytes < 0:
            break
        pieces.append(RelatedFile(find_path(document.file_uri, folders), text))
    return tuple(pieces)


def _cut_piece(document: Document, guard: Guard) -> str:
    """Returns the lines around the last edit. Nobody has edited a document that was just opened: its first lines."""
    end = document.find_edit_end()
    at = 0 if end is None else end.line
    first = max(0, at - _LINES)
    edges = (max(0, first - _MARGIN_LINES), first, at + _LINES, at + _LINES + _MARGIN_LINES)
    head, text, tail = (clean("".join(document.lines[a:b])) for a, b in pairwise(edges))
    return guard.redact_parts([head, text, tail])[1]


def find_path(uri: str, folders: Sequence[str]) -> str:
    """Returns the path of a file from its workspace folder on; if it is in none, its name.

    `folders`: the URIs of those of the workspace.
    """
    path = PurePath(to_fs_path(uri) or "")
    inside = (each for each in map(to_fs_path, folders) if each is not None and path.is_relative_to(each))
    return next((path.relative_to(each).as_posix() for each in inside), path.name)
