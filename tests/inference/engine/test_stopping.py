import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inference.engine.stopping import BlockRule, LineRule, build_extent_rule, count_stable, find_indent, find_stop
from inference.protocol.completion import Extent

_letters = st.text(alphabet="ab\n\r )}\t", max_size=12)


@pytest.mark.parametrize(
    ("extent", "prefix", "suffix", "rule"),
    [
        (Extent.SINGLE_LINE, "def f():", "", LineRule()),
        (Extent.AUTO, "x = ", "", LineRule()),
        (Extent.AUTO, "def f():", "", BlockRule(1, closes=True)),
        (Extent.AUTO, "def f(): ", "\nx", BlockRule(1, closes=True)),
        (Extent.AUTO, "def f():", ")", LineRule()),
        (Extent.AUTO, "    if x:\n        ", "", BlockRule(5, closes=True)),
        (Extent.AUTO, "f(\n\n    ", "", BlockRule(1, closes=True)),
        (Extent.AUTO, "x = 1\n    ", "", LineRule()),
        (Extent.AUTO, "", "", LineRule()),
        (Extent.BLOCK, "    x = ", "", BlockRule(4, closes=False)),
        (Extent.BLOCK, "\tx = {", "", BlockRule(9, closes=True)),
        (Extent.BLOCK, "x = ", ")", BlockRule(0, closes=False)),
        (Extent.UNLIMITED, "    if x:", "", BlockRule(0, closes=False)),
    ],
)
def test_the_stopping_rule_follows_the_text_around_the_cursor(
    extent: Extent, prefix: str, suffix: str, rule: LineRule | BlockRule
) -> None:
    assert build_extent_rule(extent, prefix, suffix) == rule


@pytest.mark.parametrize(
    ("text", "end"), [("ab", None), ("ab\n", 2), ("ab\r\nc", 2), ("\n", 0), ("a\rb\n", 3), ("ab\r", None)]
)
def test_a_line_ends_before_its_line_end(text: str, end: int | None) -> None:
    assert LineRule().find_end(text) == end


@pytest.mark.parametrize(
    ("rule", "text", "end"),
    [
        (BlockRule(4, closes=False), "a\n    b\n", None),
        (BlockRule(4, closes=False), "a\n    b\nc", 7),
        (BlockRule(4, closes=False), "a  \n\n\nc", 1),
        (BlockRule(4, closes=False), "a\n\n    b", None),
        (BlockRule(4, closes=False), "a\n  ", None),
        (BlockRule(4, closes=False), "a\r\n  \r\nc", 1),
        (BlockRule(1, closes=True), "\n    a\n}", None),
        (BlockRule(1, closes=True), "\n    a\n})\nb", 9),
        (BlockRule(1, closes=True), "\r\n    a\r\n}\r\nb", 10),
        (BlockRule(1, closes=True), "\n    a\nb", 6),
        (BlockRule(1, closes=False), "\n    a\n}", 6),
        (BlockRule(9, closes=True), "\n\t\ta\n\tb", 4),
    ],
)
def test_a_block_ends_before_the_first_less_indented_line(rule: BlockRule, text: str, end: int | None) -> None:
    assert rule.find_end(text) == end


@given(text=_letters, more=_letters, min_indent=st.integers(0, 3), closes=st.booleans())
def test_more_text_does_not_move_a_found_end(text: str, more: str, min_indent: int, closes: bool) -> None:
    for rule in (LineRule(), BlockRule(min_indent, closes)):
        end = rule.find_end(text)

        assert end is None or rule.find_end(text + more) == end


@pytest.mark.parametrize(("line", "indent"), [("", 0), ("  a", 2), ("\ta", 8), (" \ta", 8), ("\t a", 9), ("    ", 4)])
def test_indentation_is_counted_in_columns(line: str, indent: int) -> None:
    assert find_indent(line) == (indent if line.strip() else len(line.expandtabs(8)))


@given(
    text=st.text(alphabet="ab", max_size=8), stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=3)
)
def test_the_first_stop_string_is_found(text: str, stops: list[str]) -> None:
    found = [start for start in range(len(text)) if any(text.startswith(stop, start) for stop in stops)]

    assert find_stop(text, tuple(stops)) == (found[0] if found else None)


@settings(max_examples=10 * settings().max_examples)
@given(
    text=st.text(alphabet="ab", max_size=8),
    more=st.text(alphabet="ab", max_size=4),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3),
)
def test_stable_text_never_becomes_part_of_a_stop_string_and_what_waits_could(
    text: str, more: str, stops: list[str]
) -> None:
    assume(find_stop(text, tuple(stops)) is None)
    num_stable = count_stable(text, tuple(stops))
    found = find_stop(text + more, tuple(stops))
    assert found is None or found >= num_stable
    assert num_stable == len(text) or any(stop.startswith(text[num_stable:]) for stop in stops)


@pytest.mark.parametrize(
    ("rule", "text", "settled"),
    [
        (LineRule(), "a ", "a "),
        (LineRule(), "a\r", "a"),
        (BlockRule(4, closes=True), "a ", "a"),
        (BlockRule(4, closes=True), "a\n     \n ", "a"),
        (BlockRule(4, closes=True), "a\n    b", "a\n    b"),
        (BlockRule(4, closes=True), "a\n    b\n} ", "a\n    b\n} "),
        (BlockRule(4, closes=True), "a\n    b\n}\r", "a\n    b\n}"),
        (BlockRule(0, closes=False), "a \n ", "a \n "),
    ],
)
def test_what_the_end_of_a_line_or_block_may_cut_is_not_settled(
    rule: LineRule | BlockRule, text: str, settled: str
) -> None:
    assert rule.find_end(text) is None
    assert text[: rule.count_settled(text)] == settled
