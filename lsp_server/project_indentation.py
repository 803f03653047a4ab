"""The indentation of one level in a file that does not show it yet."""

import contextlib
import os
import re
from codecs import StreamReaderWriter
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from editorconfig.exceptions import ParsingError
from editorconfig.ini import EditorConfigParser
from pygls.uris import to_fs_path

from lsp_server.context import Context
from lsp_server.documents import Document
from lsp_server.indentation import find_unit

_WITH_TABS = ("go", "gomod", "make")
_MAX_FILES, _MAX_CHARS = 8, 16_384  # of the same folder that are looked at
_MAX_CONFIG_BYTES = 65_536
_MAX_WILDCARDS = 5
_SIZES = tuple(map(str, range(1, 17)))


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


class _EditorConfig(EditorConfigParser):
    """A file of anybody's: what is wrong in it is skipped, and so are patterns that take long to compare."""

    def read(self, filename: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if os.path.isfile(filename) and os.path.getsize(filename) <= _MAX_CONFIG_BYTES:
                super().read(filename)

    def _read(self, fp: StreamReaderWriter, fpname: str) -> None:
        with fp, contextlib.suppress(ParsingError):
            super()._read(fp, fpname)

    def matches_filename(self, config_filename: str, glob: str) -> bool:
        if glob.count("{") > _MAX_WILDCARDS or max(map(_count_stars, glob.split(","))) > _MAX_WILDCARDS:
            return False
        with contextlib.suppress(re.error, TypeError):  # a pattern that is none; a number that is not there
            return super().matches_filename(config_filename, glob)
        return False


def _count_stars(pattern: str) -> int:
    return pattern.count("*")


def _read_editorconfig(path: str) -> str | None:
    values: dict[str, str] = {}
    for folder in Path(path).parents:
        file = _EditorConfig(path)
        file.read(str(folder / ".editorconfig"))
        values = {name: value.lower() for name, value in file.options.items()} | values
        if file.root_file:
            break
    style, size = values.get("indent_style"), values.get("indent_size", "")
    if style == "tab":
        return "\t"
    size = values.get("tab_width", "") if size == "tab" else size
    return " " * int(size) if style == "space" and size in _SIZES else None


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
