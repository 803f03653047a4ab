"""The indentation of one level in a file that does not show it yet."""

import contextlib
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import editorconfig
from pygls.uris import to_fs_path

from lsp_server.context import Context
from lsp_server.documents import Document
from lsp_server.indentation import find_unit

_WITH_TABS = ("go", "gomod", "make")
_MAX_FILES, _MAX_CHARS = 8, 16_384  # of the same folder that are looked at


def find_project_unit(document: Document, others: Iterable[Document]) -> str | None:
    """Returns the unit that .editorconfig, the other open files, those of the folder or the language's custom says.

    Nothing of these files leaves the process.
    """
    path = to_fs_path(document.file_uri) if document.file_uri.startswith("file:") else None
    if path is not None and (found := _read_editorconfig(path)):
        return found
    similar = [each for each in others if each.language == document.language and each is not document]
    texts = ["".join(each.lines)[:_MAX_CHARS] for each in similar if each.problem is None]
    found = _find_common(texts) or _find_common(_read_neighbours(Path(path)) if path else ())
    return found or ("\t" if document.language in _WITH_TABS else None)


def _read_editorconfig(path: str) -> str | None:
    with contextlib.suppress(editorconfig.EditorConfigError, OSError, UnicodeError):
        values = editorconfig.get_properties(path)
        if values.get("indent_style") == "tab":
            return "\t"
        size = values.get("indent_size", "")
        if values.get("indent_style") == "space" and size.isdecimal():
            return " " * int(size) or None
    return None


def _find_common(texts: Iterable[str]) -> str | None:
    units = Counter(unit for text in texts if (unit := find_unit(Context(text, ""))) is not None)
    return max(units, key=lambda unit: units[unit]) if units else None


def _read_neighbours(path: Path) -> Iterable[str]:
    with contextlib.suppress(OSError):
        for each in islice(path.parent.glob(f"*{path.suffix}") if path.suffix else (), _MAX_FILES):
            if each != path and each.is_file():
                with each.open(errors="replace") as file:
                    yield file.read(_MAX_CHARS)
