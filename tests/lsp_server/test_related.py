"""Declarations of other files are written above the cursor's line."""

from collections.abc import Sequence

import pytest

from inference.protocol.completion import CompletionRequest
from lsp_server.context import Context
from lsp_server.guard import Guard
from lsp_server.project.declarations import Declaration, summarize
from lsp_server.project.grammar import load_grammar
from lsp_server.related import insert_declarations, read_words
from tests.support.secret_forms import SECRETS, count_secret_bytes

_NODE = "class Node(Base):\n    def children(self):\n        pass\n\nclass NodeList:\n    pass\n"


def _declare(text: str) -> Sequence[Declaration]:
    return summarize(text.encode(), load_grammar("python")).declarations


_Known = dict[int, list[Declaration]]


def _add(
    known: _Known,
    prefix: str,
    *others: Sequence[Declaration],
    language: str = "python",
    max_bytes: int = 300,
    is_expected: bool = False,
) -> str:
    return insert_declarations(Context(prefix, ""), language, others, known, max_bytes, is_expected)


@pytest.mark.parametrize(
    ("prefix", "added"),
    [
        ("x = 1\n    y = Nod", "x = 1\n    # class NodeList\n    # class Node(Base)\n    y = Nod"),
        # What is called,
        ("x = Node(f(1), ", "# class Node(Base)\nx = Node(f(1), "),
        ("x = Node(1) + ", "x = Node(1) + "),
        ("x = (children(", "# def children(self)\nx = (children("),
        # what the file itself has,
        ("Nodes = 1\nx = Nod", "Nodes = 1\nx = Nod"),
        ("xNodes = 1\nx = Nod", "xNodes = 1\n# class NodeList\n# class Node(Base)\nx = Nod"),
        ("Nod = 1\nx = Nod", "Nod = 1\n# class NodeList\n# class Node(Base)\nx = Nod"),
        # one letter is too little to look for, and what does not match.
        ("x = N", "x = N"),
        ("x = foo", "x = foo"),
    ],
)
def test_declarations_whose_names_begin_with_the_typed_word_and_of_what_is_called_are_added(
    prefix: str, added: str
) -> None:
    assert _add({}, prefix, _declare(_NODE)) == added


def test_a_language_without_known_comments_gets_none() -> None:
    assert _add({}, "Nod", _declare(_NODE), language="brainfuck") == "Nod"


def test_the_budget_is_kept_and_can_be_zero() -> None:
    names = "".join(f"name_{number} = {number}\n" for number in range(100))
    added = _add({}, "name", _declare(names), max_bytes=100)
    assert 0 < len(added) - len("name") <= 100
    assert _add({}, "name", _declare(names), max_bytes=0) == "name"


@pytest.mark.parametrize("typed", ["last(fir", "last(first_", "last(first_two, la", "last(fi"])
def test_a_line_gets_its_comments_once_and_loses_those_of_files_that_may_not_be_used_any_more(typed: str) -> None:
    known, other = _Known(), _declare("first = 1\nfirst_two = 2\nlast = 3\n")
    assert _add(known, "x", other) == "x"
    assert _add(known, "last(fi", other) == "# last\n# first_two\n# first\nlast(fi"
    assert _add(known, typed, other) == f"# last\n# first_two\n# first\n{typed}"
    assert _add(known, typed) == typed


def test_text_that_nobody_has_typed_leaves_a_line_its_choice() -> None:
    known, other = _Known(), _declare(_NODE)
    assert _add(known, "children", other, is_expected=True).count("#") == 1
    assert _add(known, "Node", other) == "# class NodeList\n# class Node(Base)\nNode"


def test_where_the_budget_ends_the_most_urgent_remain() -> None:
    other = _declare("first = 1\nfirst_two = 2\nlast = 3\n")
    assert _add({}, "last(fi", other, max_bytes=24) == "# first_two\n# first\nlast(fi"


def test_another_line_has_its_own_comments() -> None:
    known, other = _Known(), _declare(_NODE)
    _add(known, "children", other)
    assert _add(known, "children\nx = ", other) == "children\nx = "


def test_no_part_of_a_secret_in_another_file_is_added_even_where_a_declaration_is_cut() -> None:
    for secret in SECRETS:
        for num_before in (0, 100, 140, 155):
            text = f"value_{'x' * num_before} = 1; {secret.text}"
            added = _add({}, "value_", _declare(text), max_bytes=1000)
            assert count_secret_bytes([added], [secret.secret], min_chars=5) == 0, secret.form


# Forms in which the secret stands before any value.
_DECLARATIONS = (
    "def value_of(first, •): ...",
    "def value_of(first='•'): ...",
    "value_of: • = 1",
    "value_of = '•'",
    "class value_of(•): ...",
    "class A:\n    def f(self):\n        self.value_of: • = None",
)


@pytest.mark.parametrize("form", _DECLARATIONS)
def test_no_part_of_a_secret_in_a_declaration_is_sent(form: str) -> None:
    added = [
        (each, _add({}, "value_", _declare(form.replace("•", each.text.rstrip("\n")))))
        for each in SECRETS
        if len(each.secret) >= 8 and not each.template.endswith("•\n")  # such a value ends with its line
    ]
    assert sum("value_of" in prefix for _, prefix in added) > len(added) / 2
    for each, prefix in added:
        sent = Guard(is_remote=True).clear(CompletionRequest(prefix), ()).value.prefix
        assert count_secret_bytes([sent], each.secret.split("\n"), min_chars=6) == 0, each.form


def test_a_line_of_a_private_key_is_no_declaration() -> None:
    key = next(secret for secret in SECRETS if secret.form == "RSA key block")
    text = key.text.replace("==", "=")
    last = text.split("\n")[-4]
    assert last.endswith("=")
    assert _add({}, last[:4], _declare(text)) == last[:4]


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
    assert read_words(line) == (typed, called)
