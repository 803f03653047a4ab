"""What is told of the project: names and signatures that the next lines will probably use, the likely ones first."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from lsp_server.project.declarations import Declaration, Summary
from lsp_server.project.imports import find_imported, list_package
from lsp_server.project.index import Index

_WORD = re.compile(r"[^\W\d]\w{3,}")
_MAX_FILES_BY_NAME = 3  # that declare a name; what more of them declare is not told by the name alone
_MAX_MEMBERS = 60  # of a type
_MAX_TYPES = 40  # whose members are told


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    declaration: Declaration
    is_signed: bool = False  # told with its signature, not only with its name


def choose_declarations(
    index: Index, path: str, language: str, summary: Summary, text: str, max_bytes: int
) -> dict[str, str]:
    """Returns lines for other files of the project, by their paths, in the order of their worth.

    `summary`: of the file at `path`. `text`: that before the cursor, whose names are told if other files have them.
    """
    scope = _Scope(index, path, language, summary)
    told = _Told(max_bytes)
    for entry in chain(scope.iter_imported(), scope.iter_members(), scope.iter_used(text), scope.iter_others()):
        told.add(entry)
    return told.write()


class _Scope:
    """The files whose names a file has, because it imports them or because they are in its package."""

    def __init__(self, index: Index, path: str, language: str, summary: Summary) -> None:
        self._index, self._path = index, path
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

    def iter_members(self) -> Iterator[_Entry]:
        """Yields the members of imported types, then those of the types that these name."""
        waiting = list(self.iter_imported())
        known = set[_Entry]()
        while waiting and len(known) < _MAX_TYPES:
            owner = waiting.pop(0)
            if owner in known:
                continue
            known.add(owner)
            members = self._list_members(owner.path, owner.declaration.name)
            yield from members
            texts = [owner.declaration.text, *(each.declaration.text for each in members)]
            types = dict.fromkeys(word for text in texts for word in _WORD.findall(text) if word[0].isupper())
            waiting += [entry for name in types for entry in self._find(name, owner.path)]

    def iter_used(self, text: str) -> Iterator[_Entry]:
        """Yields what the text names, the last names first."""
        words = dict.fromkeys(reversed(_WORD.findall(text)))
        imported = {each.name for declarations in self._files.values() for each in declarations}
        for path, declarations in self._files.items():
            yield from (
                _Entry(path, each) for each in declarations if each.name in words and each.name not in self._own
            )
        for word in words.keys() - self._own - imported:
            for entry in self._find(word, self._path):
                yield from (entry, *self._list_members(entry.path, word))

    def iter_others(self) -> Iterator[_Entry]:
        """Yields what else the files declare, members last."""
        found = [(path, each) for path, declarations in self._files.items() for each in declarations]
        public = [_Entry(path, each) for path, each in found if not each.name.startswith("_")]
        yield from sorted(public, key=lambda entry: entry.declaration.parent != "")

    def _list(self, path: str) -> Sequence[Declaration]:
        return self._index.list_declarations(path)

    def _list_members(self, path: str, owner: str) -> list[_Entry]:
        hidden = "__" if owner in self._bases else "_"  # a class may use what its base hides from others
        members = [each for each in self._list(path) if each.parent == owner and not each.name.startswith(hidden)]
        return [_Entry(path, each) for each in members[:_MAX_MEMBERS]]

    def _find(self, name: str, near: str) -> list[_Entry]:
        """Returns the declaration of a name, in the file at `near` if that has one; none if it is a common name."""
        paths = [path for path in self._index.find_declared(name) if path != self._path]
        if len(paths) > _MAX_FILES_BY_NAME:
            return []
        chosen = [path for path in paths if path == near] or paths[:1]
        return [
            _Entry(path, each, True)
            for path in chosen
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

    def add(self, entry: _Entry) -> None:
        """Adds an entry that is not there, if it fits."""
        path, declaration = entry.path, entry.declaration
        text = declaration.text if entry.is_signed else declaration.name
        lines = self._lines.get(path)
        num_bytes = len(text.encode()) + 2 + (len(path) + 3 if lines is None else 0)
        num_bytes += len(declaration.parent) + 2 if declaration.parent not in (lines or {"": []}) else 0
        if (path, declaration.name) in self._known or num_bytes > self._room:
            return
        self._room -= num_bytes
        self._known.add((path, declaration.name))
        self._put(self._lines.setdefault(path, {}), entry)

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
