"""What is told of the project: names and signatures that the next lines will probably use, the likely ones first."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile

from lsp_server.project.declarations import Declaration, Summary
from lsp_server.project.imports import find_imported, list_package
from lsp_server.project.index import Index

_WORD = re.compile(r"[^\W\d]\w{3,}|[A-Z]\w\w")  # with three letters only a type
MAX_BYTES = 2000  # that are told, however large the window is
# What a window of 512 tokens has room for is not told: there, the file's own text is worth more.
_UNTOLD_BYTES = 448
_MAX_FILES_BY_NAME = 3  # that declare a name; what more of them declare is not told by the name alone
_MAX_MEMBERS = 60  # of a type
_MIN_ROOM = 40  # in bytes
_MAX_STEPS = 3  # from a name in the text to a type, to the types that its members name, to those that theirs name


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    declaration: Declaration
    is_signed: bool = False  # told with its signature, not only with its name


def find_max_bytes(related_bytes: int) -> int:
    """Returns how much is told. `related_bytes`: what the window has room for."""
    return max(0, min(MAX_BYTES, related_bytes - _UNTOLD_BYTES))


def choose_declarations(
    index: Index, path: str, language: str, summary: Summary, text: str, max_bytes: int
) -> dict[str, str]:
    """Returns lines for other files of the project, by their paths, in the order of their worth.

    `summary`: of the file at `path`. `text`: that before the cursor, whose names are told if other files have them.
    """
    scope = _Scope(index, path, language, summary)
    told = _Told(max_bytes)
    entries = chain(scope.iter_imported(), scope.iter_members(text), scope.iter_others())
    for entry in takewhile(lambda _: told.has_room, entries):
        told.add(entry)
    return told.write()


class _Scope:
    """The files whose names a file has, because it imports them or because they are in its package."""

    def __init__(self, index: Index, path: str, language: str, summary: Summary) -> None:
        self._index, self._path, self._language = index, path, language
        self._imported = find_imported(index, path, summary.imports, language)
        self._files = {each: self._list(each) for each in [*self._imported, *list_package(index, path, language)]}
        self._own = {each.name for each in summary.declarations}
        self._bases = {word for each in summary.declarations if not each.parent for word in _WORD.findall(each.text)}

    def iter_imported(self) -> Iterator[_Entry]:
        """Yields what imports name."""
        for path, names in self._imported.items():
            yield from (
                _Entry(path, each, True) for each in self._files[path] if not each.parent and each.name in names
            )

    def iter_members(self, text: str) -> Iterator[_Entry]:
        """Yields the members of types that the text names, the last ones first, and then of types that these name."""
        names, known = dict.fromkeys(reversed(_WORD.findall(text))), set(self._own)
        for _ in range(_MAX_STEPS):
            types = dict[str, None]()
            for owner in (entry for name in names if name not in known for entry in self._find(name)):
                members = self._list_members(owner.path, owner.declaration.name)
                yield from members
                texts = [each.declaration.text for each in (owner, *members)]
                types |= dict.fromkeys(word for text in texts for word in _WORD.findall(text) if word[0].isupper())
            known |= names.keys()
            names = types

    def iter_others(self) -> Iterator[_Entry]:
        """Yields what else the files declare: that of whole modules first, members last."""
        whole = {path for path in self._files if "" in self._imported.get(path, {"": None})}
        found = [_Entry(path, each) for path, declarations in self._files.items() for each in declarations]
        visible = [entry for entry in found if self._is_visible(entry)]
        yield from sorted(visible, key=lambda entry: (entry.declaration.parent != "", entry.path not in whole))

    def _is_visible(self, entry: _Entry) -> bool:
        name = entry.declaration.name
        if self._language == "go" and posixpath.dirname(entry.path) != posixpath.dirname(self._path):
            return name[0].isupper()
        return not name.startswith("_")

    def _list(self, path: str) -> Sequence[Declaration]:
        return self._index.list_declarations(path)

    def _list_members(self, path: str, owner: str) -> list[_Entry]:
        hidden = "__" if owner in self._bases else "_"  # a class may use what its base hides from others
        members = [each for each in self._list(path) if each.parent == owner and not each.name.startswith(hidden)]
        return [_Entry(path, each) for each in members[:_MAX_MEMBERS]]

    def _find(self, name: str) -> list[_Entry]:
        """Returns the declaration of a name, an imported one if there is one; none if it is a common name."""
        paths = [path for path in self._index.find_declared(name) if path != self._path]
        if len(paths) > _MAX_FILES_BY_NAME:
            return []
        chosen = [path for path in paths if path in self._files] or paths
        return [
            _Entry(path, each, True)
            for path in chosen[:1]
            for each in self._list(path)
            if each.name == name and not each.parent
        ]


class _Told:
    """Lines of each file: signatures, each with the names of members, and names alone."""

    def __init__(self, room: int) -> None:
        """`room`: in bytes."""
        self._room = room
        self._lines: dict[str, dict[str, list[str]]] = {}  # by path and by the name that begins the line
        self._signatures: dict[tuple[str, str], str] = {}
        self._known: set[tuple[str, str]] = set()

    @property
    def has_room(self) -> bool:
        """False if hardly anything more fits."""
        return self._room > _MIN_ROOM

    def add(self, entry: _Entry) -> None:
        """Adds an entry that is not there, if it fits; of one with a signature at least its name."""
        if not self._add(entry) and entry.is_signed:
            self._add(replace(entry, is_signed=False))

    def _add(self, entry: _Entry) -> bool:
        path, declaration = entry.path, entry.declaration
        text = declaration.text if entry.is_signed else declaration.name
        lines = self._lines.get(path)
        num_bytes = len(text.encode()) + 2 + (len(path) + 3 if lines is None else 0)
        num_bytes += len(declaration.parent) + 2 if declaration.parent not in (lines or {"": []}) else 0
        if (path, declaration.name) in self._known or num_bytes > self._room:
            return False
        self._room -= num_bytes
        self._known.add((path, declaration.name))
        self._put(self._lines.setdefault(path, {}), entry)
        return True

    def _put(self, lines: dict[str, list[str]], entry: _Entry) -> None:
        declaration = entry.declaration
        if entry.is_signed:
            self._signatures[entry.path, declaration.name] = declaration.text
            lines.setdefault(declaration.name, [])
        else:
            lines.setdefault(declaration.parent, []).append(declaration.name)

    def write(self) -> dict[str, str]:
        """Returns the lines of each file."""
        return {
            path: "".join(f"{self._write_line(path, name, members)}\n" for name, members in lines.items())
            for path, lines in self._lines.items()
        }

    def _write_line(self, path: str, name: str, members: Sequence[str]) -> str:
        return ": ".join(filter(None, [self._signatures.get((path, name), name), ", ".join(members)]))
