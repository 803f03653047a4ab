"""Reads the names of Python files, with `ast`."""

import ast
from collections.abc import Collection, Iterator, Mapping

from benchmarks.measures.used_names import EVERYTHING, Import, NamedProject, Occurrence, Role, SourceFile

_BUILT_IN = (str, bytes, list, tuple, dict, set, int, float)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def read_python(texts: Mapping[str, str]) -> NamedProject:
    """Reads all files of a project; those that are not Python of this version are left out."""
    files = {path: file for path, text in texts.items() if (file := _read(path, text, texts)) is not None}
    return NamedProject(files, frozenset(name for each in _BUILT_IN for name in dir(each)))


def _read(path: str, text: str, paths: Collection[str]) -> SourceFile | None:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    reader = _Reader()
    reader.visit(tree)
    return SourceFile(path, reader.found, [*_iter_imports(tree, path, paths)])


class _Reader(ast.NodeVisitor):
    """Collects occurrences. Strings are not read, nor the code in them."""

    def __init__(self) -> None:
        self.found: list[Occurrence] = []
        self._role = Role.DECLARE  # of a name that is assigned to

    def _add(self, node: ast.AST, name: str, role: Role, is_member: bool = False, column: int | None = None) -> None:
        line, start = getattr(node, "lineno", 1) - 1, getattr(node, "col_offset", 0)
        self.found.append(Occurrence(line, start if column is None else column, name, role, is_member))

    def visit_Name(self, node: ast.Name) -> None:
        self._add(node, node.id, Role.USE if isinstance(node.ctx, ast.Load) else self._role)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        role = Role.DECLARE_MEMBER if is_own and isinstance(node.ctx, ast.Store) else Role.USE
        line, column = (node.end_lineno or 1) - 1, (node.end_col_offset or 0) - len(node.attr.encode())
        self.found.append(Occurrence(line, column, node.attr, role, is_member=True))

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg is not None:
            self._add(node, node.arg, Role.USE, is_member=True)
        self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        self._add(node, node.arg, Role.BIND)
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self._add(node, node.name, Role.BIND)
        self.generic_visit(node)

    def visit_JoinedStr(self, _: ast.JoinedStr) -> None:
        pass

    def _visit_scope(self, node: _Function | ast.ClassDef, role: Role) -> None:
        self._add(node, node.name, self._role)
        outside, self._role = self._role, role
        self.generic_visit(node)
        self._role = outside

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_scope(node, Role.BIND)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_scope(node, Role.BIND)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_scope(node, Role.BIND if self._role is Role.BIND else Role.DECLARE_MEMBER)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.generic_visit(node)


def _iter_imports(tree: ast.AST, path: str, paths: Collection[str]) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = (_find_module(alias.name.split("."), paths) for alias in node.names)
            yield from (Import(node.lineno - 1, each) for each in found if each is not None)
        elif isinstance(node, ast.ImportFrom):
            yield from _read_from(node, path, paths)


def _read_from(node: ast.ImportFrom, path: str, paths: Collection[str]) -> Iterator[Import]:
    package = path.split("/")[: -node.level] if node.level else []
    module = [*package, *(node.module or "").split(".")] if node.module else package
    for alias in node.names:
        submodule = _find_module([*module, alias.name], paths)
        if submodule is not None:
            yield Import(node.lineno - 1, submodule)
        elif (found := _find_module(module, paths)) is not None:
            yield Import(node.lineno - 1, found, frozenset([EVERYTHING if alias.name == "*" else alias.name]))


def _find_module(parts: list[str], paths: Collection[str]) -> str | None:
    places = ("/".join(parts) + ".py", "/".join([*parts, "__init__.py"]))
    return next((place for place in places if place in paths), None)
