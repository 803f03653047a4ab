"""Names that a file uses for the first time, and where its project declares them, known without the product's index.

The readers of languages, `python_names` and `tree_names`, say which names stand where and what is imported. A name
alone (`Thing`) must be imported or declared in the file itself. A member (`thing.member`) may belong to anything: its
declaration is looked for by name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cached_property

MIN_LETTERS = 4
EVERYTHING = "*"  # in an import
KNOWN = -1  # the line of an import that needs none
_MAX_RE_EXPORTS = 3  # one after another


class Role(Enum):
    """What a name does at a place."""

    USE = auto()
    DECLARE = auto()  # a function, class, type or constant of the module
    DECLARE_MEMBER = auto()  # a method, field or member of an enum
    BIND = auto()  # a parameter or local variable


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name in code outside of imports, strings and comments."""

    line: int  # from 0
    column: int
    name: str
    role: Role
    is_member: bool = False


@dataclass(frozen=True, slots=True)
class Import:
    """An import of another file of the project, or a part of one."""

    line: int  # from 0, or KNOWN
    path: str
    names: frozenset[str] | None = None  # None: the module, whose names are its members


class Owner(StrEnum):
    """Where a name is declared."""

    IMPORTED = "imported"  # a file that is imported above the use
    ITSELF = "itself"  # further down
    OTHER = "other"  # another file of the project
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class FirstUse:
    """The first place in a file where a name stands, which is a use."""

    name: str
    line: int  # from 0
    owner: Owner
    is_member: bool


@dataclass(frozen=True)
class SourceFile:
    """What a reader has found in a file."""

    path: str
    occurrences: Sequence[Occurrence]
    imports: Sequence[Import]

    @cached_property
    def declared(self) -> set[str]:
        """The names that belong to the module."""
        return {each.name for each in self.occurrences if each.role is Role.DECLARE}

    @cached_property
    def members(self) -> set[str]:
        """All that may stand behind a dot."""
        return self.declared | {each.name for each in self.occurrences if each.role is Role.DECLARE_MEMBER}

    def list_first(self) -> list[Occurrence]:
        """The first occurrence of each name that is used there."""
        first: dict[str, Occurrence] = {}
        for each in sorted(self.occurrences, key=lambda each: (each.line, each.column)):
            first.setdefault(each.name, each)
        return [each for each in first.values() if each.role is Role.USE and _is_long(each.name)]


def _is_long(name: str) -> bool:
    return sum(map(str.isalpha, name)) >= MIN_LETTERS and not name.startswith("__")


class NamedProject:
    """The files of a project, by path."""

    def __init__(self, files: Mapping[str, SourceFile], common_members: frozenset[str]) -> None:
        """`common_members`: those of the language's own types, which are seldom the project's."""
        self._files, self._common_members = files, common_members
        self._found: dict[tuple[str, str], str | None] = {}
        self._all_members = {name for file in files.values() for name in file.members}

    def find_first_uses(self, path: str) -> Iterator[FirstUse]:
        """Yields what the file at `path` uses for the first time."""
        file = self._files[path]
        for each in file.list_first():
            owner = self._find_owner(file, each)
            yield FirstUse(each.name, each.line, owner, each.is_member)

    def _find_owner(self, file: SourceFile, use: Occurrence) -> Owner:
        if use.is_member and use.name in self._common_members:
            return Owner.OUTSIDE
        if any(self._has(each, use) for each in file.imports if each.line < use.line and each.path != file.path):
            return Owner.IMPORTED
        if use.name in (file.members if use.is_member else file.declared):
            return Owner.ITSELF
        if use.is_member and use.name in self._all_members:
            return Owner.OTHER
        return Owner.OUTSIDE

    def _has(self, imported: Import, use: Occurrence) -> bool:
        """True if the import leads to a file that declares the name."""
        if not use.is_member:
            names = imported.names or ()
            return (use.name in names or EVERYTHING in names) and self._find(imported.path, use.name) is not None
        return any(use.name in self._files[path].members for path in self._list_files(imported)) or (
            imported.names is None and self._find(imported.path, use.name) is not None
        )

    def _list_files(self, imported: Import) -> set[str]:
        """The file that is imported, and those that declare the names that it passes on."""
        found = {self._find(imported.path, name) for name in imported.names or ()}
        return {imported.path} | {path for path in found if path is not None}

    def _find(self, path: str, name: str) -> str | None:
        """Returns the file that declares what the file at `path` calls `name`."""
        if (path, name) not in self._found:
            self._found[path, name] = self._follow(path, name, 0)
        return self._found[path, name]

    def _follow(self, path: str, name: str, depth: int) -> str | None:
        file = self._files[path]
        if name in file.declared:
            return path
        if depth == _MAX_RE_EXPORTS:
            return None
        passed_on = (
            each
            for each in file.imports
            if each.line != KNOWN and each.names and (name in each.names or EVERYTHING in each.names)
        )
        return next((found for each in passed_on if (found := self._follow(each.path, name, depth + 1))), None)
