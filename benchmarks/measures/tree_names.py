"""Reads the names of TypeScript, Go and Rust files, in trees of tree-sitter.

A table for each language says which nodes give a name a role; all other names are uses.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import tree_sitter_go
import tree_sitter_rust
import tree_sitter_typescript
from tree_sitter import Language, Node, Parser

from benchmarks.measures.used_names import EVERYTHING, KNOWN, Import, NamedProject, Occurrence, Role, SourceFile

_Resolver = Callable[[Node, str, Mapping[str, str]], Iterator[Import]]


@dataclass(frozen=True, slots=True)
class _Grammar:
    language: Language
    resolve: _Resolver
    leaves: Mapping[str, bool]  # nodes that are names -> whether they are members
    roles: Mapping[tuple[str, str], Role]  # by type of node and field
    skipped: frozenset[str]  # imports, and what is no code
    members: frozenset[tuple[str, str]]  # fields that hold members, though their nodes do not say so
    bodies: frozenset[str]  # what is declared in these is local
    owners: frozenset[str]  # functions in these are members
    common_members: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Reader:
    grammar: _Grammar
    found: list[Occurrence] = field(default_factory=list)

    def visit(
        self, node: Node, role: Role = Role.USE, is_member: bool = False, within: frozenset[str] = frozenset()
    ) -> None:
        grammar = self.grammar
        if node.type in grammar.leaves:
            self._add(node, role, is_member or grammar.leaves[node.type])
        if node.type in grammar.skipped:
            return
        inside = within | {node.type} if node.type in grammar.bodies | grammar.owners else within
        for index, child in enumerate(node.children):
            place = node.type, node.field_name_for_child(index) or ""
            of_member = self._is_member(place, child) or (is_member and node.type == "literal_element")
            self.visit(child, self._find_role(place, node, role, within), of_member, inside)

    def _find_role(self, place: tuple[str, str], node: Node, role: Role, within: frozenset[str]) -> Role:
        found = self.grammar.roles.get(place, Role.USE if place[1] in ("type", "value", "right") else role)
        if found is not Role.DECLARE:
            return found
        if node.type == "function_item" and "impl_item" in within and _is_of_trait(node):
            return Role.BIND  # it is declared in the trait
        if within & self.grammar.bodies:
            return Role.BIND
        return Role.DECLARE_MEMBER if within & self.grammar.owners else Role.DECLARE

    def _is_member(self, place: tuple[str, str], child: Node) -> bool:
        if place in self.grammar.members:
            return True
        before = child.prev_sibling if place[0] == "token_tree" else None
        return before is not None and before.type in (".", "::")

    def _add(self, node: Node, role: Role, is_member: bool) -> None:
        name = (node.text or b"").decode(errors="replace")
        if role is Role.BIND and (is_member or (self.grammar.language is _RUST and name[0].isupper())):
            role = Role.USE  # a field, variant or constant in a pattern
        self.found.append(Occurrence(*node.start_point, name, role, is_member))


def _is_of_trait(node: Node) -> bool:
    """True for a function in the implementation of a trait."""
    owner = node.parent.parent if node.parent else None
    return owner is not None and owner.child_by_field_name("trait") is not None


def read_trees(language: str, texts: Mapping[str, str]) -> NamedProject:
    """Reads all files of a project in `typescript`, `go` or `rust`. In `texts`, `go.mod` names Go's module."""
    files = {path: read_tree(language, path, texts) for path in texts if path != "go.mod"}
    return NamedProject(files, _GRAMMARS[language].common_members)


def _find_grammar(language: str, path: str) -> _Grammar:
    return _GRAMMARS["tsx" if path.endswith(".tsx") else language]


def read_tree(language: str, path: str, texts: Mapping[str, str]) -> SourceFile:
    """Reads one file of a project; see `read_trees`."""
    grammar = _find_grammar(language, path)
    root = Parser(grammar.language).parse(texts[path].encode()).root_node
    reader = _Reader(grammar)
    reader.visit(root)
    return SourceFile(path, reader.found, [*grammar.resolve(root, path, texts)])


def _iter_nodes(node: Node, *types: str) -> Iterator[Node]:
    if node.type in types:
        yield node
    for child in node.children:
        yield from _iter_nodes(child, *types)


def _read_text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode(errors="replace")


def _resolve_typescript(root: Node, path: str, texts: Mapping[str, str]) -> Iterator[Import]:
    for node in root.children:
        source = _read_text(node.child_by_field_name("source")).strip("\"'")
        if source.startswith("."):
            found = _find_script(posixpath.normpath(posixpath.join(posixpath.dirname(path), source)), texts)
            if found is not None:
                yield Import(node.start_point[0], found, _read_names(node))


def _find_script(place: str, texts: Mapping[str, str]) -> str | None:
    base = re.sub(r"\.[cm]?jsx?$", "", place)
    places = (
        place,
        f"{base}.ts",
        f"{base}.tsx",
        f"{place}.ts",
        f"{place}.tsx",
        f"{base}/index.ts",
        f"{base}/index.tsx",
    )
    return next((each for each in places if each in texts), None)


def _read_names(node: Node) -> frozenset[str] | None:
    """The names that an import or export binds; None for a namespace."""
    if any(_iter_nodes(node, "namespace_import", "namespace_export")):
        return None
    clauses = [*_iter_nodes(node, "import_clause", "export_clause")]
    names = {_read_text(each) for clause in clauses for each in _iter_nodes(clause, "identifier")}
    return frozenset(names if clauses else {EVERYTHING})


def _resolve_go(root: Node, path: str, texts: Mapping[str, str]) -> Iterator[Import]:
    """The other files of the package are known without an import."""
    folder, module = posixpath.dirname(path), re.search(r"^module (\S+)", texts["go.mod"], re.MULTILINE)
    for other in _list_go(folder, texts):
        yield Import(KNOWN, other, frozenset([EVERYTHING]))
    for spec in _iter_nodes(root, "import_spec"):
        imported = _read_text(spec.child_by_field_name("path")).strip('"`') + "/"
        if module is not None and imported.startswith(module[1] + "/"):
            for other in _list_go(imported.removeprefix(module[1] + "/").rstrip("/"), texts):
                yield Import(spec.start_point[0], other)


def _list_go(folder: str, texts: Mapping[str, str]) -> list[str]:
    return [path for path in texts if path.endswith(".go") and posixpath.dirname(path) == folder]


def _resolve_rust(root: Node, path: str, texts: Mapping[str, str]) -> Iterator[Import]:
    modules = {_find_module(each): each for each in texts}
    for node in _iter_nodes(root, "mod_item", "use_declaration"):
        here = _find_module(path) + _list_inline(node)
        if node.type == "mod_item" and node.child_by_field_name("body") is None:
            found = modules.get((*here, _read_text(node.child_by_field_name("name"))))
            if found is not None:
                yield Import(node.start_point[0], found)
        elif node.type == "use_declaration":
            for parts in _flatten(node.child_by_field_name("argument")):
                yield from _find_use(parts, here, modules, node.start_point[0])


def _find_module(path: str) -> tuple[str, ...]:
    parts = path.removesuffix(".rs").split("/")
    parts = parts[1:] if parts[0] == "src" else parts
    return tuple(parts[:-1] if parts[-1] in ("lib", "main", "mod") else parts)


def _list_inline(node: Node) -> tuple[str, ...]:
    """The modules with a body around a node."""
    parent, names = node.parent, list[str]()
    while parent is not None:
        if parent.type == "mod_item":
            names.insert(0, _read_text(parent.child_by_field_name("name")))
        parent = parent.parent
    return tuple(names)


def _flatten(node: Node | None, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of a `use`, each with its parts; `*` stands for all of a module."""
    if node is None:
        return
    path = node.child_by_field_name("path")
    if node.type in ("use_list", "scoped_use_list", "use_wildcard"):
        first = node.named_children[0] if node.type == "use_wildcard" and node.named_children else path
        start = before + _split(first)
        if node.type == "use_wildcard":
            yield (*start, EVERYTHING)
        parts = node.child_by_field_name("list") if node.type == "scoped_use_list" else node
        for each in parts.named_children if parts is not None and node.type != "use_wildcard" else ():
            yield from _flatten(each, start)
    elif node.type == "use_as_clause":
        yield before + _split(path)
    else:
        yield before + _split(node)


def _split(node: Node | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in _read_text(node).split("::") if part.strip())


def _find_use(
    parts: tuple[str, ...], here: tuple[str, ...], modules: Mapping[tuple[str, ...], str], line: int
) -> Iterator[Import]:
    start: tuple[str, ...] | None = None
    if parts[:1] == ("crate",):
        start, parts = (), parts[1:]
    elif parts[:1] == ("self",):
        start, parts = here, parts[1:]
    while parts[:1] == ("super",):
        start, parts = (here if start is None else start)[:-1], parts[1:]
    if start is None and parts:
        start = next((each for each in (here, ()) if (*each, parts[0]) in modules), None)
    if start is None:
        return
    whole = (*start, *(part for part in parts if part != "self"))
    length = next(length for length in range(len(whole), -1, -1) if whole[:length] in modules or length == 0)
    if whole[:length] in modules:
        yield Import(line, modules[whole[:length]], frozenset(whole[length:]) or None)


def _give(role: Role, *places: str) -> dict[tuple[str, str], Role]:
    return {(node, name): role for place in places for node, _, name in [place.partition(".")]}


def _list_places(*places: str) -> frozenset[tuple[str, str]]:
    return frozenset(_give(Role.USE, *places))


_RUST = Language(tree_sitter_rust.language())
_GRAMMARS = {
    "go": _Grammar(
        Language(tree_sitter_go.language()),
        _resolve_go,
        {"identifier": False, "type_identifier": False, "field_identifier": True},
        _give(Role.DECLARE, "function_declaration.name", "type_spec.name", "type_alias.name")
        | _give(Role.DECLARE, "const_spec.name", "var_spec.name")
        | _give(Role.DECLARE_MEMBER, "method_declaration.name", "field_declaration.name", "method_elem.name")
        | _give(Role.BIND, "parameter_declaration.name", "variadic_parameter_declaration.name")
        | _give(Role.BIND, "short_var_declaration.left", "range_clause.left", "type_switch_statement.alias")
        | _give(Role.BIND, "type_parameter_declaration.name", "receive_statement.left"),
        frozenset(["package_clause", "import_declaration", "labeled_statement.label", "comment"]),
        _list_places("keyed_element.key", "qualified_type.name"),
        frozenset(["block"]),
        frozenset(),
    ),
    "rust": _Grammar(
        _RUST,
        _resolve_rust,
        {"identifier": False, "type_identifier": False, "field_identifier": True, "shorthand_field_identifier": True},
        _give(Role.DECLARE, "function_item.name", "function_signature_item.name", "struct_item.name", "enum_item.name")
        | _give(Role.DECLARE, "union_item.name", "trait_item.name", "const_item.name", "static_item.name")
        | _give(Role.DECLARE, "type_item.name", "macro_definition.name", "associated_type.name")
        | _give(Role.DECLARE_MEMBER, "enum_variant.name", "field_declaration.name")
        | _give(Role.BIND, "mod_item.name", "let_declaration.pattern", "parameter.pattern", "for_expression.pattern")
        | _give(Role.BIND, "match_arm.pattern", "let_condition.pattern", "type_parameter.name", "const_parameter.name")
        | _give(Role.BIND, "closure_expression.parameters")
        | _give(Role.USE, "match_pattern.condition", "parameter.type"),
        frozenset(
            [
                "use_declaration",
                "attribute_item",
                "inner_attribute_item",
                "lifetime",
                "label",
                "extern_crate_declaration",
            ]
        ),
        _list_places("scoped_identifier.name", "scoped_type_identifier.name"),
        frozenset(["block"]),
        frozenset(["impl_item", "trait_item"]),
    ),
    "typescript": _Grammar(
        Language(tree_sitter_typescript.language_typescript()),
        _resolve_typescript,
        {
            **{"identifier": False, "type_identifier": False, "property_identifier": True},
            **{"private_property_identifier": True, "shorthand_property_identifier": False},
            "shorthand_property_identifier_pattern": True,
        },
        _give(Role.DECLARE, "function_declaration.name", "class_declaration.name", "abstract_class_declaration.name")
        | _give(Role.DECLARE, "interface_declaration.name", "type_alias_declaration.name", "enum_declaration.name")
        | _give(Role.DECLARE, "variable_declarator.name", "function_signature.name", "internal_module.name")
        | _give(Role.DECLARE, "generator_function_declaration.name")
        | _give(
            Role.DECLARE_MEMBER, "method_definition.name", "method_signature.name", "abstract_method_signature.name"
        )
        | _give(Role.DECLARE_MEMBER, "property_signature.name", "public_field_definition.name", "enum_assignment.name")
        | _give(Role.DECLARE_MEMBER, "enum_body.name")
        | _give(Role.BIND, "required_parameter.pattern", "optional_parameter.pattern", "arrow_function.parameter")
        | _give(Role.BIND, "catch_clause.parameter", "for_in_statement.left", "type_parameter.name")
        | _give(Role.BIND, "rest_pattern.", "function_expression.name", "index_signature.name"),
        frozenset(["import_statement", "export_clause", "statement_identifier", "comment"]),
        frozenset(),
        frozenset(["statement_block"]),
        frozenset(),
    ),
}
_GRAMMARS["tsx"] = _Grammar(
    Language(tree_sitter_typescript.language_tsx()),
    *(getattr(_GRAMMARS["typescript"], name) for name in _Grammar.__slots__ if name != "language"),
)
