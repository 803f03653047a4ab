"""Declarations are found in texts of many languages."""

import pytest

from lsp_server.declarations import find_declarations
from lsp_server.documents import split_lines


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("def read_lines(path):", "read_lines"),
        ("    async def fetch(self) -> bytes:", "fetch"),
        ("class Node(Base):", "Node"),
        ("MAX_SIZE: int = 7", "MAX_SIZE"),
        ("        self.children: list[Node] = []", "children"),
        ("export default class Tree {", "Tree"),
        ("export const limit = 3;", "limit"),
        ("pub(crate) fn parse(text: &str) -> Node {", "parse"),
        ("func (s *Server) Serve(port int) error {", "Serve"),
        ("  interface Shape {", "Shape"),
        ("größe = 1", "größe"),
    ],
)
def test_a_line_declares_a_name(line: str, name: str) -> None:
    (declaration,) = find_declarations([line + "\n"])
    assert (declaration.name, declaration.text) == (name, line)


@pytest.mark.parametrize("line", ["x == 1", "define(3)", "    y = 2", "return Node", "# class Node:", "", "classes"])
def test_a_line_declares_nothing(line: str) -> None:
    assert find_declarations([line + "\n"]) == []


def test_a_declaration_has_the_lines_until_its_brackets_are_closed() -> None:
    lines = split_lines("def f(\r\n    a: int,\r\n) -> None:\r\n    pass\r\n")
    assert find_declarations(lines)[0].text == "def f(\n    a: int,\n) -> None:"


def test_of_each_name_the_first_declaration_counts() -> None:
    assert [each.text for each in find_declarations(["a = 1\n", "a = 2\n"])] == ["a = 1"]
