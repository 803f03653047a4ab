"""What one file declares and imports, without bodies and without values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from tree_sitter import Node, Parser, QueryCursor

from lsp_server.project.grammar import Grammar

_MAX_CHARS = 160  # of a signature or of the first line of a documentation
_MAX_DEPTH = 24  # of the nodes below a declaration that are looked at
# Limits for texts that take seconds, in which no other thread would run: C with 300,000 brackets took a minute.
_MAX_DEPTH_OF_DECLARATIONS = 48  # nodes around one
_MAX_PARSER_STEPS = 30_000  # of about a hundred tokens each; code of 300,000 characters takes 6,000
_MAX_ERROR_CHILDREN = 10_000  # nodes in a piece that is no code
_BUFFER_BYTES = 1024
_CONDITION_BYTES = 64
_MAX_BRACES = 100  # of a `use` of Rust; each calls a function in another
_VALUES = {"value", "default_value", "right"}
_TYPES = re.compile("extends|subscript|binary_operator")  # nodes with parts of a type in these fields
_LITERAL = re.compile("string|char_literal|template_str|comment|regex|raw_text|integer|float|number|int_literal")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A name, and how it is declared: parameters and types, no body and no values."""

    name: str
    text: str  # in one line
    parent: str = ""  # the class or type whose member it is


@dataclass(frozen=True, slots=True)
class Import:
    """A name of another module; empty: all of its names."""

    module: str  # as it stands in the file
    name: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a file declares and imports, in the order of the file."""

    declarations: tuple[Declaration, ...] = ()
    imports: tuple[Import, ...] = ()


def summarize(source: bytes, grammar: Grammar) -> Summary:
    """Returns what is declared and imported in a file, which may be incomplete.

    A declaration inside of a function is left out: no other file can use it. A file that takes too long has none.
    """
    text = _Source(source)
    root = text.parse(Parser(grammar.language))  # which one thread may use only
    if root is None or _has_long_error(root):
        return Summary()
    cursor = QueryCursor(grammar.query)
    cursor.set_max_start_depth(_MAX_DEPTH_OF_DECLARATIONS)
    matches = [captures for _, captures in cursor.matches(root)]
    found = {name.id: (name, each) for each in matches for name in each.get("name", ())}
    imports = [each for match in matches for each in _read_imports(text, match)]
    return Summary(tuple(_iter_declarations(text, list(found.values()))), tuple(dict.fromkeys(imports)))


class _Source:
    """The text of a file.

    tree-sitter 0.26 never frees what a function has returned to it. So it gets one small buffer again and again, and
    no node is asked for its text.
    """

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._is_parsed = False

    def parse(self, parser: Parser) -> Node | None:
        """Returns None if it takes too many steps. Other threads run between two."""
        steps = count()
        try:
            tree = parser.parse(self._give, progress_callback=lambda *_: next(steps) >= _MAX_PARSER_STEPS)
        except ValueError:
            return None
        self._is_parsed = True
        return tree.root_node

    def read(self, node: Node) -> str:
        return self.cut(node.start_byte, node.end_byte)

    def cut(self, start: int, end: int) -> str:
        return self._source[start:end].decode("utf-8", "replace")

    def _give(self, start: int, _point: object) -> memoryview | bytes:
        """Returns the text from `start` on; while it is parsed, at least as much as the buffer holds."""
        if self._is_parsed or start >= len(self._source):  # for a condition in a query, which needs bytes
            return self._source[start : start + _CONDITION_BYTES]
        self._buffer[:] = self._source[start : start + _BUFFER_BYTES].ljust(_BUFFER_BYTES, b"\n")
        return self._buffer


def _has_long_error(root: Node) -> bool:
    """True if a query would take long: the square of the number of nodes that are in no other node."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.is_error and node.child_count > _MAX_ERROR_CHILDREN:
            return True
        waiting += [each for each in node.children if each.has_error]
    return False


def _iter_declarations(text: _Source, found: list[tuple[Node, dict[str, list[Node]]]]) -> Iterator[Declaration]:
    around: list[tuple[int, str, str]] = []  # the declarations that the next one is in: end, kind, name
    seen = set[tuple[str, str]]()
    for name_node, captures in sorted(found, key=lambda each: each[0].start_byte):
        kind, node = _find_definition(captures)
        name = text.read(name_node)
        around = [each for each in around if each[0] > name_node.start_byte]
        parent = _find_parent(text, captures, kind, around)
        around.append((node.end_byte, kind, name))
        if parent is None or kind == "implementation" or (name, parent) in seen:
            continue
        seen.add((name, parent))
        yield Declaration(name, _read_signature(text, node, name_node), parent)


def _find_definition(captures: dict[str, list[Node]]) -> tuple[str, Node]:
    return next((key.partition(".")[2], nodes[0]) for key, nodes in captures.items() if key.startswith("definition"))


def _find_parent(
    text: _Source, captures: dict[str, list[Node]], kind: str, around: list[tuple[int, str, str]]
) -> str | None:
    """The type of which it is a member; empty for none; None if it is in a function."""
    if "parent" in captures:
        return text.read(captures["parent"][0])
    types = [name for _, each, name in around if each not in ("function", "method", "constant", "module", "field")]
    is_local = any(each in ("function", "method") for _, each, _ in around)
    if is_local and (kind != "field" or not types):
        return None
    return types[-1] if types else ""


def _read_signature(source: _Source, node: Node, name: Node) -> str:
    """A declaration up to its body or value, in one line, without literals and comments.

    Only the name is left of what cannot be parsed.
    """
    start, end = _find_start(node), _find_end(source, node, name)
    pieces, at = list[str](), start
    for literal in _iter_literals(node, end):
        if literal.is_error:
            return source.read(name)
        if literal.start_byte >= at:
            pieces += [source.cut(at, literal.start_byte), "" if "comment" in literal.type else "…"]
            at = literal.end_byte
    text = " ".join("".join([*pieces, source.cut(at, end)]).split()).rstrip("{:=;, ")
    text = re.sub(r"(?<=[(\[]) |,? (?=[)\]])", "", text)  # where lines ended
    if len(text) > _MAX_CHARS:
        text = text[:_MAX_CHARS].rpartition(" ")[0]
    return text


def _find_start(node: Node) -> int:
    """Behind decorators and modifiers that are written above."""
    return max([node.start_byte, *(each.end_byte for each in node.children if "decorator" in each.type)])


def _find_end(source: _Source, node: Node, name: Node) -> int:
    """Where the body or the value begins, if there is one."""
    ends = [node.end_byte]
    each: Node | None = name
    while each is not None and each.start_byte >= node.start_byte:
        for field in ("body", *_VALUES):
            child = each.child_by_field_name(field)
            if child is not None and child.start_byte >= name.end_byte:
                body = child.child_by_field_name("body")
                ends.append((body or child).start_byte)
        if each.id == node.id:
            break
        each = each.parent
    lists = [child.start_byte for child in node.children if child.type.endswith(("_list", "_body", "block"))]
    return min([*ends, *(start for start in lists if start >= name.end_byte and source.cut(start, start + 1) == "{")])


def _iter_literals(node: Node, end: int) -> Iterator[Node]:
    """Yields values, comments and what is no code before `end`, those in others left out."""
    waiting = [(node, False, 0)]
    while waiting:
        each, is_value, depth = waiting.pop()
        if each.start_byte >= end:
            continue
        if is_value or each.is_error or (each.is_named and _LITERAL.search(each.type) and each.id != node.id):
            yield each
        elif depth < _MAX_DEPTH:
            named = [(child, each.field_name_for_child(number)) for number, child in enumerate(each.children)]
            waiting += [
                (child, field in _VALUES and not _TYPES.search(each.type), depth + 1)
                for child, field in reversed(named)
            ]


def _read_imports(text: _Source, captures: dict[str, list[Node]]) -> Iterator[Import]:
    if "use" in captures:
        yield from map(Import, _expand(text.read(captures["use"][0])))
    elif "mod" in captures:
        yield Import("self::" + text.read(captures["mod"][0]))
    elif "module" in captures:
        names = [text.read(each) for each in captures.get("imported", ())] or [""]
        yield from (Import(text.read(captures["module"][0]), "" if name == "*" else name) for name in names)


def _expand(use: str) -> list[str]:
    """The paths of a `use` of Rust: those in braces one by one."""
    match = re.fullmatch(r"(?s)([^{}]*)\{(.*)\}\s*", use)
    if match is None or use.count("{") > _MAX_BRACES:
        return ["".join(use.partition(" as ")[0].split())]
    parts, depth, start = list[str](), 0, 0
    for at, char in enumerate(match[2] + ","):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts, start = [*parts, match[2][start:at]], at + 1
    return [each for part in parts if part.strip() for each in _expand(match[1].strip() + part.strip())]
