"""What an editor inserts, and that it does not repeat the text after the cursor."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lsprotocol.types import Position, PositionEncodingKind, Range, SelectedCompletionInfo

from lsp_server.context import Context
from lsp_server.documents import Place
from lsp_server.items import Insertion, completion_item, extend_selected, fit, inline_item

UTF8, UTF16 = PositionEncodingKind.Utf8, PositionEncodingKind.Utf16


@pytest.mark.parametrize(
    ("around", "text", "inserted"),
    [
        ("return Nod|", "e", "e"),
        ("x = |\n", "1\n", "1"),
        ("x = |\n", "  \n", None),
        ("print(|)", "name)", "name"),
        ("print(|)", "len(name)", "len(name)"),  # a bracket that the text itself opens is kept
        ("print(|)", "len(name))", "len(name)"),
        ('print("|")', 'hello")', "hello"),
        ('print(|, "x")', '"hello", "x")', '"hello"'),
        ("foo(|, b)", "a,", "a"),
        ("my_|value", "new_value", "new_"),
        ("return |x\n", "not ", "not "),  # the blank separates it from the word
        ("return |x\n", "not x", "not "),
        ('input("|")\n', "Name: ", "Name: "),
        ("return |x\n", "  ", None),
        ("f(|)\n", "a, ", "a,"),
        ("val|ue", "ue", None),
        ("x = a|else", " + e", " + e"),  # `e` does not repeat `else`
        ("f(g(|)", "x)", "x)"),  # a bracket that the text before the cursor opens is kept
        ("f(g(|)", "x))", "x)"),
        ("f(|)", "x)", "x"),
        ("f(g(|))", "x)", "x"),
        ("f(g(|))", "x))", "x"),
        ("f(g(|))", "h(x))", "h(x)"),
        ("f(g(|)) + 1", "h(x))", "h(x)"),
        ('f("|")', "x", "x"),
        ("if a:\n    |\n    b = 2\n", "a = 1\n    b = 2", "a = 1\n    b = 2"),  # the engine knows where to end
        ("{\n    {\n    |\n}\n", "}", "}"),  # the next line is indented differently
        ("def f():\n    |\n    return 1\n", "return 1", None),
        ("def f():\n    retu|\n    return 1\n", "rn 1", None),
        ("def f():\n    retu|\n    return 10\n", "rn 1", "rn 1"),
        ("a = [|]\n", "1,\n    2,\n", "1,"),  # several lines in the middle of a line are cut
        ("if a:|\n", "\n    b()\n", "\n    b()"),
    ],
)
def test_the_text_after_the_cursor_is_not_repeated(around: str, text: str, inserted: str | None) -> None:
    prefix, suffix = around.split("|")
    assert fit(text, Context(prefix, suffix)) == (None if inserted is None else Insertion(inserted))


@pytest.mark.parametrize("text", ["self):\n    pass", "self):"])
def test_a_block_replaces_the_brackets_that_it_closes(text: str) -> None:
    assert fit(text, Context("def f(", ")\n")) == Insertion(text, ")")


@pytest.mark.parametrize("char", ["\x1b", "\r", "\0", "\x7f", "\x9b", "\u202a", "\u202e", "\u2066", "\u2069"])
def test_a_suggestion_ends_before_a_control_character(char: str) -> None:
    assert fit(f"a\n\tb = {char}1", Context("", "")) == Insertion("a\n\tb =")
    assert fit(f"{char}a", Context("", "")) is None


_TEXTS = st.text("ab()\"' \n,", max_size=12)


@given(_TEXTS, _TEXTS)
def test_the_inserted_text_is_a_beginning_of_the_generated_text(text: str, suffix: str) -> None:
    insertion = fit(text, Context("", suffix))
    assume(insertion is not None)
    assert insertion is not None
    assert insertion.text != ""
    assert text.startswith(insertion.text)


@given(_TEXTS.filter(str.strip))
def test_at_the_end_of_a_line_only_trailing_white_space_is_removed(text: str) -> None:
    assert fit(text, Context("x", "\n")) == Insertion(text.rstrip())


@given(_TEXTS.filter(str.strip))
def test_before_unrelated_text_the_first_line_is_kept(text: str) -> None:
    first_line = text.partition("\n")[0]
    assert fit(text, Context("", "else:\n")) == (Insertion(first_line) if first_line.strip() else None)


def test_at_the_end_of_a_line_the_item_replaces_the_typed_word() -> None:
    item = inline_item(Insertion("e"), Context("x = Nod", "\nmore"), Place(Position(3, 7)))
    assert (item.insert_text, item.range) == ("Node", Range(Position(3, 4), Position(3, 7)))


def test_in_the_middle_of_a_line_the_item_only_inserts() -> None:
    item = inline_item(Insertion("e"), Context("f(Nod", ")\nmore"), Place(Position(3, 5)))
    assert (item.insert_text, item.range) == ("e", Range(Position(3, 5), Position(3, 5)))


@pytest.mark.parametrize(("encoding", "cursor", "start"), [(UTF8, 8, 5), (UTF16, 5, 3)])
def test_ranges_are_in_the_units_of_the_editor(encoding: PositionEncodingKind, cursor: int, start: int) -> None:
    item = inline_item(Insertion("x"), Context("😀 éa", ""), Place(Position(0, cursor), encoding))
    assert item.range is not None
    assert (item.range.start.character, item.range.end.character) == (start, cursor)


def test_a_menu_item_passes_the_filters_of_clients() -> None:
    item = completion_item(Insertion("e(value)\n    x"), Context("return Nod", ""), Place(Position(0, 10)))
    assert item.label == "Node(value) …"
    assert item.filter_text == "Node(value)"
    assert item.text_edit is not None
    assert item.text_edit.new_text == "Node(value)\n    x"
    assert item.documentation == "Node(value)\n    x"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_the_text_has_the_documents_line_ends(line_end: str) -> None:
    insertion, context = Insertion(":\n    x\n"), Context("if a", "")
    place = Place(Position(0, 4), line_end=line_end)
    text = f"a:{line_end}    x{line_end}"
    assert inline_item(insertion, context, place).insert_text == text
    edit = completion_item(insertion, context, place).text_edit
    assert edit is not None
    assert edit.new_text == text


def test_an_item_continues_what_the_menu_has_selected() -> None:
    selected = SelectedCompletionInfo(Range(Position(0, 7), Position(0, 10)), ".log")
    place = Place(Position(0, 10))
    item = extend_selected(Insertion("g(x)"), Context("console.lo", ""), place, selected)
    assert item is not None
    assert (item.insert_text, item.range) == (".log(x)", selected.range)


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        ((0, 7), (0, 10), ".lock"),
        ((0, 6), (0, 10), ".log"),
        ((0, 7), (0, 9), ".l"),
        ((0, 11), (0, 12), ""),
        ((0, 7), (1, 0), ".log"),
        ((1, 7), (1, 10), ".log"),
    ],
)
def test_no_item_is_shown_over_another_selection(start: tuple[int, int], end: tuple[int, int], text: str) -> None:
    selected = SelectedCompletionInfo(Range(Position(*start), Position(*end)), text)
    assert extend_selected(Insertion("g(x)"), Context("console.lo", ""), Place(Position(0, 10)), selected) is None
