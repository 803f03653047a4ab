"""The LSP items: ranges in the editor's units, line ends, and what clients filter by."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lsprotocol.types import MarkupContent, MarkupKind, Position, Range, SelectedCompletionInfo

from lsp_server.context import Context
from lsp_server.documents import Place
from lsp_server.items import (
    Insertion,
    Suggestion,
    completion_item,
    cut_at_placeholder,
    drop_repeated_above,
    extend_selected,
    fit,
    inline_item,
)


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
        ("return |x\n", "not ", "not "),  # the blank separates it from the word
        ('input("|")\n', "Name: ", "Name: "),
        ("return |x\n", "  ", None),
        ("f(|)\n", "a, ", "a,"),
        ("f(g(|)", "x)", "x)"),  # a bracket that the text before the cursor opens is kept
        ("f(g(|)", "x))", "x)"),
        ("f(|)", "x)", "x"),
        ("f(g(|))", "x)", "x"),
        ("f(g(|))", "x))", "x"),
        ("f(g(|))", "h(x))", "h(x)"),
        ("f(g(|)) + 1", "h(x))", "h(x)"),
        ("sorted(orders, key=lambda order: |)", "order.total)", "order.total"),
        ("sorted(orders, key=lambda order: |)", "[0, 1, 2, 3", None),  # the model has not closed its own
        ("sorted(orders, key=lambda order: |)", "order.total, default=[0, 1", "order.total"),
        ('Path("|"))', 'file.txt")', "file.txt"),  # what the file has too much of stays
        ("f(\n    g(a|)\n)\n", ", b))", ", b"),
        ('f("|")', "x", "x"),
        ("if a:\n    |\n    b = 2\n", "a = 1\n    b = 2", "a = 1\n    b = 2"),  # the engine knows where to end
        ("{\n    {\n    |\n}\n", "}", "}"),  # the next line is indented differently
        ("a = [|]\n", "1,\n    2,\n", "1,"),  # several lines in the middle of a line are cut
        ("if a:|\n", "\n    b()\n", "\n    b()"),
        # Each filter is applied.
        ("x = |\n", 'key = "REDACTED"', "key ="),
        ("if a:\n\tb()\nif c:|\n", "\n    d()", "\n\td()"),
        ("x = 1\n|\n", "x = 1", None),
        # An apostrophe or a quote in a string in three quotes closes nothing.
        ("    '''|'''", "Don't.", "Don't."),
        ("print('''|''')", "it's", "it's"),
        ("print('|')", "it's", "it"),
        ('f("""|""")', 'a "b" c"""', 'a "b" c'),
        # Brackets in a string count if the cursor is in them.
        ('f(f"Hello {|}")', "name}", "name"),
        ('x = f"{a[|]}"', "0]", "0"),
        ("`it's ${|}`;", "name}", "name"),
        ("x = \"{a['|']}\"", "b'", "b"),
        ('re.compile("|")', '\\(")', "\\("),
    ],
)
def test_the_text_is_made_to_fit_between_what_is_around_it(around: str, text: str, inserted: str | None) -> None:
    assert fit(text, Context(*around.split("|"))) == (None if inserted is None else Insertion(inserted))


@pytest.mark.parametrize(
    ("around", "text", "replaced"),
    [
        ("def f(|)\n", "self):\n    pass", ")"),
        ("def f(|)\n", "self):", ")"),
        ("f(|) + c", "a, b)  # note", ")"),
        ("f(g(|)) + c", "a))  # note", "))"),
        ("f(|) + c", "a  # note", ""),
        ("f(g(|) + c", "a)  # note", ""),  # one of the two brackets is missing
        ("def __len__(|)\n", "self):\n    return len(self.items", ""),  # the block ends before the bracket
        ('print(Path("|"))', '.py"), "py"', '")'),
        ('for path in os.listdir(Path("|"))', '.py"), "py"):', '"))'),
        ('foo(bar["k|"])', 'ey"], "key"', '"]'),
        ('assert len(items("a|"))', '", "b") == 0', '")'),
        ('f("|")', 'a" + "b', ""),
        ("f(|)", "'don\\'t', b)  # don't", ")"),
        ("fn f<'a>(x: &'|)", "a str, y: &'a str) {", ")"),
        ("f(\n    (a, b|)\n)\n", ", c) + (d", ""),
        ('f("""|""")', 'it\'s "a" b""", 1) + 2', '""")'),
        ('f(f"Hello {|}")', "name}!", "}"),
        ('f(f"Hello {|}")', 'name}!", b) + 1', '}")'),
        ("`it's ${|}`;", "name} b", "}"),
        # The text has what stands after the brackets, too.
        ('println!("|");', '{}", x);', '");'),
        ("if foo(|):", "a) and b:", "):"),
        ('if a in "([|":', '{":', '":'),
        ("if foo(|):", "a) and b:\n    c()", "):"),
        ("foo(bar(|));", "a), b);", "));"),
        ("def f(a: Dict[str, |]) -> None:", "int], b: int) -> None:", "]) -> None:"),
        ("foo(|); // (see", "a, b);", ");"),
        ("foo(|);", "a, b) + 1", ")"),
        # Those of types and tags.
        ("let v: Vec<|>", "u8> = Vec::new();", ">"),
        ("let v: Vec<|> = Vec::new();", "u8> = Vec::new();", "> = Vec::new();"),
        ("fn f(\n    m: HashMap<String, Vec<|>>)", "u8>>, b: u8) {", ">>)"),
        ("fn f() -> Option<|> {", "u8", ""),
        ("let f: Box<|>;", "dyn Fn() -> u8>;", ">;"),
        ("<a|>", ' href="b"', ""),
        ("if i < a|> b", ".c", ""),
    ],
)
def test_a_bracket_that_is_closed_already_is_replaced(around: str, text: str, replaced: str) -> None:
    assert fit(text, Context(*around.split("|"))) == Insertion(text, replaced)


@pytest.mark.parametrize("char", ["\x1b", "\r", "\0", "\x7f", "\x9b", "\u202a", "\u202e", "\u2066", "\u2069", "\ufffd"])
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
    assert text.lstrip().startswith(insertion.text.lstrip())


@given(st.text("ab \n,", max_size=12).filter(str.strip))
def test_at_the_end_of_a_line_white_space_is_removed_and_before_unrelated_text_more_than_a_line(text: str) -> None:
    assert fit(text, Context("x", "\n")) == Insertion(text.rstrip())
    first_line = text.partition("\n")[0]
    assert fit(text, Context("", "else:\n")) == (Insertion(first_line) if first_line.strip() else None)


def _nest(atoms: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Those in calls, lists and indexes."""
    return st.recursive(
        atoms,
        lambda inner: st.builds(
            lambda form, parts: form.format(", ".join(parts)),
            st.sampled_from(["f({})", "[{}]", "d[{}]", "f({}).g", "({}) + a"]),
            st.lists(inner, max_size=3),
        ),
        max_leaves=6,
    )


_PLAIN = st.sampled_from(["a", "b.c", "1"])
_STRINGS = st.sampled_from(
    ['"s"', "'t'", '"x, y"', '"it\'s"', "'\\\\'", "lambda: a", '"""it\'s"""', "'''it's'''", "'''say \"b\"'''"]
)
_FORMATTED = st.builds(
    str.format,
    st.sampled_from(['f"{{{}}}"', 'f"Hello {{{}}}!"', "f'{{{}}} b'", "`it's ${{{}}}`", 'f"""it\'s {{{}}}"""']),
    _nest(_PLAIN),
)
_CALLS = _nest(_PLAIN | _STRINGS | _FORMATTED).map("f({})".format)


_APOSTROPHE = re.compile(r"(?<=\w)(?<!\b[bfru])'(?=\w)")
_QUOTES = re.compile(r"([\"'`])(?:\1\1)?")


def _find_closers(line: str) -> str | None:
    """What an editor has inserted after a line that is being typed; None where brackets or quotes are wrong.

    An apostrophe between two letters begins no string. In a string, `{` begins code.
    """
    closers, at = list[str](), 0
    while at < len(line):
        char, at = line[at], at + 1
        if closers and closers[-1][0] in "\"'`":
            if line.startswith(closers[-1], at - 1):
                at += len(closers.pop()) - 1
            elif closers[-1].startswith(line[at - 1 :]):  # within three quotes
                return None
            elif char == "\\":
                at += 1
            elif char == "{":
                closers.append("}")
        elif (quotes := _QUOTES.match(line, at - 1)) and not _APOSTROPHE.match(line, at - 1):
            closers.append(quotes[0])
            at = quotes.end()
        elif char in "([{":
            closers.append({"(": ")", "[": "]", "{": "}"}[char])
        elif char in ")]}" and (not closers or closers.pop() != char):
            return None
    return "".join(reversed(closers))


_TAILS = st.sampled_from(["", "", ";", ":", " -> None:", " # note"])
_ENDS = st.sampled_from(["", ")", '")', "))", '"', "]", "}", "'", '"""'])


@given(_CALLS, st.integers(0), _CALLS, st.integers(0), _ENDS, st.booleans())
def test_no_bracket_and_no_quote_is_left_open_or_surplus(
    line: str, cut: int, other: str, other_cut: int, end: str, is_right: bool
) -> None:
    cut = len("f(") + cut % (len(line) - len("f("))
    before, middle = line[:cut], line[cut:]
    after = _find_closers(before)
    assume(after is not None)
    assert after is not None
    begun = (middle if is_right else other)[: other_cut % 20]
    generated = begun.partition("{")[0] + end  # in a string, `{` may be a character
    found = fit(generated, Context(before, after + "\n"))
    assume(found is not None)
    assert found is not None
    assert _find_closers(before + found.text + after.removeprefix(found.replaced_after)) == ""


@given(_CALLS, st.integers(0), _TAILS)
def test_the_right_text_is_not_cut(line: str, cut: int, tail: str) -> None:
    cut = len("f(") + cut % (len(line) - len("f("))
    before, middle = line[:cut], line[cut:]
    after = _find_closers(before)
    assume(after is not None)
    found = fit(middle + tail, Context(before, f"{after}{tail}\n"))
    assume(found is not None)
    assert found is not None
    assert before + found.text + f"{after}{tail}".removeprefix(found.replaced_after) == line + tail


@pytest.mark.parametrize(
    ("around", "text", "left"),
    [
        ("x = 1\n|", "x = 1", ""),
        ("x = 1\nx|", " = 1", ""),
        ("x = 1\n\n|", "x = 1", ""),
        ("x = 1\n|", "x = 10", "x = 10"),
        ("    x = 1\n|", "x = 1", "x = 1"),  # indented differently
        ("a()\nb()\n|", "a()\nb()", ""),
        ("a()\nb()\n|", "b()\nc()", "b()\nc()"),
        ("f(\n  (1),\n  ),\n|", "  ),", "  ),"),  # no letter and no digit
        ("|", "x = 1", "x = 1"),
        ("  await asyncio.sleep(0)\n  |", "await asyncio.sleep(0)", "await asyncio.sleep(0)"),
        ("  it->next();\n  |", "it->next();", "it->next();"),
        ("[\n  0,\n  |", "0,", "0,"),
        ("  x = f()\n  |", "x = f()", ""),
        ("  return f()\n  |", "return f()", ""),
        ("  self.a = a\n  self.b = b\n  |", "self.b = b", "self."),
        ("  self.width = 1\n  self.wide = 2\n  se|", "lf.wide = 2", "lf."),
        ("import os\nimport re\n|", "import re", "import "),
        ("import os\nimport re\nimport |", "re", ""),
        ("  x = 1\n  y = 2\n  |", "y = 2", ""),
        ("a = 1\n\tx = 2\n\t|", "x = 2", ""),
    ],
)
def test_lines_right_above_are_not_repeated(around: str, text: str, left: str) -> None:
    assert drop_repeated_above(text, Context(*around.split("|"))) == left


@pytest.mark.parametrize(
    ("around", "text", "kept"),
    [
        ("a = 1\n|", 'password = "REDACTED"', "password = "),
        ("a = 1\n|", '"REDACTED"', ""),
        ("a = 1\n|", "f(x)\ntoken = REDACTED\ny", "f(x)\ntoken = "),
        ("a = 1\n|", 'x = "redacted"', 'x = "redacted"'),
        # A word of the file itself is kept.
        ("REDACTED = 1\nx = |", "REDACTED", "REDACTED"),
        ("x = |\nREDACTED", "REDACTED", "REDACTED"),
    ],
)
def test_the_text_ends_before_the_placeholder(around: str, text: str, kept: str) -> None:
    assert cut_at_placeholder(text, Context(*around.split("|"))) == kept


@pytest.mark.parametrize(
    ("before", "after", "cursor", "inserted", "start", "replaced"),
    [
        ("x = Nod", "\nmore", 7, "Node", 4, ""),  # at the end of a line it replaces the typed word
        ("f(Nod", ")\nmore", 5, "e", 5, ""),  # in the middle it only inserts
        ("f(Nod", ")\nmore", 5, "e", 5, ")"),  # and may replace the bracket that follows
        ("😀 éa", "", 5, "éae", 3, ""),
        # A mark or a joiner is part of its word, as in Unicode's `\\w`.
        ("संख्या = कीम", "", 12, "कीमe", 9, ""),
        ("cafe\u0301", "", 5, "cafe\u0301e", 0, ""),
        ("x = می\u200cخوا", "", 10, "می\u200cخواe", 4, ""),
    ],
)
def test_an_item_replaces_the_typed_word_in_the_units_of_the_editor(
    before: str, after: str, cursor: int, inserted: str, start: int, replaced: str
) -> None:
    item = inline_item(Insertion("e", replaced), Suggestion(Place(Position(3, cursor)), Context(before, after), ()))
    assert item.insert_text == inserted
    assert item.range == Range(Position(3, start), Position(3, cursor + len(replaced)))


@pytest.mark.parametrize(
    ("text", "label", "filter_text", "has_preview"),
    [
        ("e(value)\n    x", "Node(value) …", "Node(value)", True),
        ("\t# note", "Nod # note", "Nod\t# note", False),
    ],
)
def test_a_menu_item_passes_the_filters_of_clients_and_comes_first(
    text: str, label: str, filter_text: str, has_preview: bool
) -> None:
    item = completion_item(
        Insertion(text), Suggestion(Place(Position(0, 10)), Context("return Nod", ""), ()), reads_markdown=True
    )
    assert (item.label, item.filter_text, item.documentation is not None) == (label, filter_text, has_preview)
    assert item.text_edit is not None
    assert item.text_edit.new_text == f"Nod{text}"
    assert "\0" < (item.sort_text or "") < " "  # Emacs refuses the NUL


@pytest.mark.parametrize(("text", "fence"), [("f():\n    x", "```"), ("f():\n    ````", "`````")])
def test_the_preview_of_a_menu_item_keeps_the_indentation_in_markdown(text: str, fence: str) -> None:
    item = completion_item(Insertion(text), Suggestion(Place(Position(0, 0)), Context("", ""), ()), reads_markdown=True)
    assert item.documentation == MarkupContent(MarkupKind.Markdown, f"{fence}\n{text}\n{fence}")


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
    assert (
        extend_selected(Insertion("g(x)"), Suggestion(Place(Position(0, 10)), Context("console.lo", ""), ()), selected)
        is None
    )
