"""Declarations are found in texts of many languages."""

import pytest
from lsprotocol.types import PositionEncodingKind, TextDocumentContentChangeWholeDocument, TextDocumentItem

from inference.protocol.completion import CompletionRequest
from lsp_server.context import Context
from lsp_server.documents import Document, split_lines
from lsp_server.privacy.guard import Guard
from lsp_server.related import RelatedText, find_declarations, read_words
from tests.support.secret_forms import SECRETS, count_secret_bytes


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("def read_lines(path):", "read_lines", ""),
        ("    async def fetch(self) -> bytes:", "fetch", ""),
        ("class Node(Base):", "Node", ""),
        ("MAX_SIZE", "MAX_SIZE", ": int = 7"),
        ("        self.children", "children", ": list[Node] = []"),
        ("export default class Tree", "Tree", " {"),
        ("export const limit", "limit", " = 3;"),
        ("pub(crate) fn parse(text: &str) -> Node", "parse", " {"),
        ("func (s *Server) Serve(port int) error", "Serve", " {"),
        ("  interface Shape", "Shape", " {"),
        ("größe", "größe", " = 1"),
        ("def connect(host, password", "connect", '="hq7M7we6doCsXh", port=1):'),
        ("def login(): return", "login", " 'hq7M7we6doCsXh'"),
        ("def login():", "login", "  # the password is hq7M7we6doCsXh"),
        # and no body, whatever its language writes texts with.
        ("function login()", "login", " { mysql -uroot -phunter; }"),
        ("function login() return", "login", " [[hunter]] end"),
        ("db_password", "db_password", ": aHVudGVyMg="),
        ("def login(host, key", "login", "~s(hunter))"),
        ("def login(sk", "login", "-live-hunter)"),
        ("def login(host,", "login", " hq7M7we6doCsXh)"),
    ],
)
def test_a_line_declares_a_name_and_its_value_is_left_out(line: str, name: str, value: str) -> None:
    (declaration,) = find_declarations([line + value + "\n"])
    assert (declaration.name, declaration.text) == (name, line)


@pytest.mark.parametrize("line", ["x == 1", "define(3)", "    y = 2", "return Node", "# class Node:", "", "classes"])
def test_a_line_declares_nothing(line: str) -> None:
    assert find_declarations([line + "\n"]) == []


def test_a_declaration_has_the_lines_until_its_brackets_are_closed() -> None:
    lines = split_lines("def f(\r\n    a: int,\r\n) -> None:\r\n    pass\r\n")
    assert find_declarations(lines)[0].text == "def f(\n    a: int,\n) -> None:"


def test_of_each_name_the_first_declaration_counts() -> None:
    assert [each.text for each in find_declarations(["def a(b):\n", "a = 2\n"])] == ["def a(b):"]


_NODE = "class Node(Base):\n    def children(self):\n        pass\n\nclass NodeList:\n    pass\n"


def _document(name: str, text: str, language: str = "python") -> Document:
    return Document(TextDocumentItem(f"file:///{name}", language, 1, text), PositionEncodingKind.Utf16)


def _add(related: RelatedText, prefix: str, *others: Document, language: str = "python") -> str:
    return related.add(Context(prefix, ""), _document("a", "", language), others)


def test_an_edit_of_the_other_file_is_seen_also_under_the_same_version() -> None:
    """Neovim sends an undo of several edits so."""
    related, other = RelatedText(), _document("b", "old = 1")
    assert _add(related, "new", other) == "new"
    other.apply(1, [TextDocumentContentChangeWholeDocument("newer = 1")])
    assert _add(related, "new", other) == "# newer\nnew"


@pytest.mark.parametrize(
    ("prefix", "added"),
    [
        ("x = 1\n    y = Nod", "x = 1\n    # class NodeList:\n    # class Node(Base):\n    y = Nod"),
        # What is called,
        ("x = Node(f(1), ", "# class Node(Base):\nx = Node(f(1), "),
        ("x = Node(1) + ", "x = Node(1) + "),
        ("x = (children(", "# def children(self):\nx = (children("),
        # what the file itself has,
        ("Nodes = 1\nx = Nod", "Nodes = 1\nx = Nod"),
        ("xNodes = 1\nx = Nod", "xNodes = 1\n# class NodeList:\n# class Node(Base):\nx = Nod"),
        ("Nod = 1\nx = Nod", "Nod = 1\n# class NodeList:\n# class Node(Base):\nx = Nod"),
        # one letter is too little to look for, and what does not match.
        ("x = N", "x = N"),
        ("x = foo", "x = foo"),
    ],
)
def test_declarations_whose_names_begin_with_the_typed_word_and_of_what_is_called_are_added(
    prefix: str, added: str
) -> None:
    assert _add(RelatedText(), prefix, _document("b", _NODE)) == added


@pytest.mark.parametrize(
    ("other", "language"),
    [(("b", _NODE, "rust"), "python"), (("a", _NODE), "python"), (("b", _NODE, "brainfuck"), "brainfuck")],
    ids=["of another language", "the file itself", "of a language without known comments"],
)
def test_a_file_that_is_not_used(other: tuple[str, ...], language: str) -> None:
    assert _add(RelatedText(), "Nod", _document(*other), language=language) == "Nod"


def test_the_budget_is_kept_and_can_be_zero() -> None:
    names = "".join(f"name_{number} = {number}\n" for number in range(100))
    added = _add(RelatedText(max_bytes=100), "name", _document("b", names))
    assert 0 < len(added) - len("name") <= 100
    assert _add(RelatedText(max_bytes=0), "name", _document("b", names)) == "name"


@pytest.mark.parametrize("typed", ["last(fir", "last(first_", "last(first_two, la", "last(fi"])
def test_a_line_gets_its_comments_once_and_loses_those_of_files_that_may_not_be_used_any_more(typed: str) -> None:
    related, other = RelatedText(), _document("b", "first = 1\nfirst_two = 2\nlast = 3\n")
    assert _add(related, "x", other) == "x"
    assert _add(related, "last(fi", other) == "# last\n# first_two\n# first\nlast(fi"
    assert _add(related, typed, other) == f"# last\n# first_two\n# first\n{typed}"
    assert _add(related, typed) == typed


def test_text_that_nobody_has_typed_leaves_a_line_its_choice() -> None:
    related, other = RelatedText(), _document("b", _NODE)
    assert related.add(Context("children", ""), _document("a", ""), [other], is_imagined=True).count("#") == 1
    assert _add(related, "Node", other) == "# class NodeList:\n# class Node(Base):\nNode"


def test_where_the_budget_ends_the_most_urgent_remain() -> None:
    related, other = RelatedText(max_bytes=24), _document("b", "first = 1\nfirst_two = 2\nlast = 3\n")
    assert _add(related, "last(fi", other) == "# first_two\n# first\nlast(fi"


def test_another_line_has_its_own_comments() -> None:
    related, other = RelatedText(), _document("b", _NODE)
    _add(related, "children", other)
    assert _add(related, "children\nx = ", other) == "children\nx = "


def test_line_ends_and_lone_surrogates_of_other_files_do_not_get_into_the_prefix() -> None:
    assert _add(RelatedText(), "na", _document("b", "def name(\r\n  x, \ud800):\r\n")) == "# def name(\n# x,\nna"


def test_no_part_of_a_secret_in_another_file_is_added_even_where_a_declaration_is_cut() -> None:
    for secret in SECRETS:
        for num_before in (0, 100, 140, 155):
            text = f"value_{'x' * num_before} = 1; {secret.text}"
            added = _add(RelatedText(max_bytes=1000), "value_", _document("b", text))
            assert count_secret_bytes([added], [secret.secret], min_chars=5) == 0, secret.form


# Forms in which the secret stands before any value.
_DECLARATIONS = (
    "def value_of(first, •):",
    "function value_of() { • }",
    "value_of: • = 1",
    "type value_of •",
    "        self.value_of: • = None",
)


@pytest.mark.parametrize("form", _DECLARATIONS)
def test_no_part_of_a_secret_in_a_declaration_is_sent(form: str) -> None:
    added = [
        (each, _add(RelatedText(), "value_", _document("b", form.replace("•", each.text.rstrip("\n")))))
        for each in SECRETS
        if len(each.secret) >= 8
    ]
    assert sum("value_of" in prefix for _, prefix in added) > len(added) / 2
    for each, prefix in added:
        sent = Guard().clear(CompletionRequest(prefix), ()).value.prefix
        assert count_secret_bytes([sent], each.secret.split("\n"), min_chars=6) == 0, each.form


def test_a_line_of_a_private_key_is_no_declaration() -> None:
    key = next(secret for secret in SECRETS if secret.form == "RSA key block")
    text = key.text.replace("==", "=")
    last = text.split("\n")[-4]
    assert last.endswith("=")
    assert _add(RelatedText(), last[:4], _document("b", text)) == last[:4]


@pytest.mark.parametrize(
    ("line", "typed", "called"),
    [
        ("    x = Nod", "Nod", ""),
        ("x = ", "", ""),
        ("x1", "x1", ""),
        ("x = 1a", "a", ""),
        ("f(g(1), na", "na", "f"),
        ("f(g(", "", "g"),
        ("a.load (x, ", "", "load"),
        ("f(x)", "", ""),
        ("(x, ", "", ""),
        ("))f(", "", "f"),
        ("größe(", "", "größe"),
        ("", "", ""),
    ],
)
def test_the_typed_word_and_the_call_are_read(line: str, typed: str, called: str) -> None:
    words = read_words(line)
    assert (words.typed, words.called) == (typed, called)
