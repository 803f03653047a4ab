"""What other files say: to the model, which names may come next, and to a new file, how code is indented.

The model is told lines around the last edit in each other open file. Only one that was trained on several files in one
text, and reads enough of it, gets them. Declarations of a whole project, from an index, were measured beside them and
beside nothing (docs/measured.md).
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path, PurePath

from pygls.uris import to_fs_path

from inference.protocol.completion import MAX_NAME_BYTES, RelatedFile
from lsp_server.context import MARGIN_CHARS, MARGIN_LINES, Context, clean
from lsp_server.documents import Document
from lsp_server.guard import Guard
from lsp_server.indentation import find_unit

_NUM_LINES = (32, 16, 8)  # on each side of the last edit: the first of them for which there is room


def list_pieces(
    documents: Sequence[Document], folders: Sequence[str], max_bytes: int, guard: Guard
) -> tuple[RelatedFile, ...]:
    """Returns a piece of each document for which there is room, the first ones first. `folders`: see `find_path`.

    While one document is edited, those of the others stay, so the model has them in its cache.
    """
    pieces = list[RelatedFile]()
    for document in documents:
        text = _cut_piece(document, max_bytes, guard)
        max_bytes -= len(text.encode())
        if text:
            pieces.append(RelatedFile(find_path(document.file_uri, folders), text))
    return tuple(pieces)


def _cut_piece(document: Document, max_bytes: int, guard: Guard) -> str:
    """Returns the lines around the last edit, as many as there is room for; empty if even a few are too long.

    Nobody has edited a document that was just opened: its first lines.
    """
    end = document.find_edit_end()
    at = 0 if end is None else end.line
    for num_lines in _NUM_LINES:
        first, last = max(0, at - num_lines), at + num_lines
        if sum(map(len, document.lines[first:last])) > max_bytes:
            continue
        edges = (max(0, first - MARGIN_LINES), first, last, last + MARGIN_LINES)
        head, text, tail = (clean("".join(document.lines[a:b])) for a, b in pairwise(edges))
        text = guard.redact_parts([head[-MARGIN_CHARS:], text, tail[:MARGIN_CHARS]])[1]
        if len(text.encode()) <= max_bytes:
            return text
    return ""


def find_path(uri: str, folders: Sequence[str]) -> str:
    """Returns the path of a file from its workspace folder on; if it is in none, or that is too long, its name.

    `folders`: the URIs of those of the workspace.
    """
    path = PurePath(to_fs_path(uri) or "")
    inside = (each for each in map(to_fs_path, folders) if each is not None and path.is_relative_to(each))
    found = next((path.relative_to(each).as_posix() for each in inside), path.name)
    return found if len(found.encode(errors="replace")) <= MAX_NAME_BYTES else path.name


_WITH_TABS = ("go", "gomod", "make")
_MAX_FILES, _MAX_CHARS = 8, 16_384  # of the same folder that are looked at


def find_project_unit(document: Document, others: Iterable[Document], folder_unit: str | None) -> str | None:
    """Returns the unit of indentation that other open files, those of the folder or the language's custom say.

    `folder_unit`: see `find_folder_unit`.
    """
    similar = [each for each in others if each.language == document.language and each is not document]
    texts = ["".join(each.lines)[:_MAX_CHARS] for each in similar if each.problem is None]
    return _find_common(texts) or folder_unit or ("\t" if document.language in _WITH_TABS else None)


def find_folder_unit(uri: str) -> str | None:
    """Returns the unit of the files beside one that have its ending. It reads them, so it may take long.

    Nothing of these files leaves the process.
    """
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return _find_common(_read_neighbours(Path(path))) if path else None


def _find_common(texts: Iterable[str]) -> str | None:
    units = Counter(unit for text in texts if (unit := find_unit(Context(text, ""))) is not None)
    return max(units, key=lambda unit: units[unit]) if units else None


def _read_neighbours(path: Path) -> Iterable[str]:
    with contextlib.suppress(OSError):
        similar = (each for each in path.parent.iterdir() if path.suffix and each.suffix == path.suffix)
        for each in islice(similar, _MAX_FILES):
            if each != path and each.is_file():
                with each.open(errors="replace") as file:
                    yield file.read(_MAX_CHARS)
