import pytest

from benchmarks.corpora.cuts import MAX_OFFSET, Cut, draw_cuts, draw_cuts_by_offset
from models.training.corpus import SourceFile

_FILE = SourceFile(
    "lib", "a.py", "# header\n" * 60 + "def read_lines(source_file, numberOfLines):\n    return source_file\n" * 4
)


def _cut(before: str, after: str) -> Cut:
    return Cut("identifier", "a.py", f"x = {before}", after, "\n", len(before))


def test_cuts_by_offset_have_equally_many_of_each() -> None:
    cuts = draw_cuts_by_offset([_FILE], 3, seed=1)

    assert [cut.num_typed for cut in cuts] == [offset for offset in range(1, MAX_OFFSET + 1) for _ in range(3)]


@pytest.mark.parametrize("by_offset", [True, False])
def test_a_cut_is_inside_its_run(by_offset: bool) -> None:
    cuts = draw_cuts_by_offset([_FILE], 3, seed=1) if by_offset else draw_cuts([_FILE], 9, 0, seed=1)

    for cut in cuts:
        typed = cut.prefix[-cut.num_typed :]
        assert (typed + cut.run_end).isidentifier()
        assert not (cut.prefix[-cut.num_typed - 1] + typed).isidentifier()
        assert cut.prefix + cut.run_end + cut.suffix == _FILE.text


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("read", "_lines", True),
        ("read_", "lines", True),
        ("read", "Lines", True),
        ("re", "ad", False),
        ("_", "_init", False),
        ("HTT", "P", False),
    ],
)
def test_a_cursor_between_words_is_at_an_underscore_or_a_capital(before: str, after: str, expected: bool) -> None:
    assert _cut(before, after).is_between_words is expected


def test_the_context_begins_with_a_line() -> None:
    cut = Cut("identifier", "a.py", "one = 1\ntwo = 2\nthr", "ee", "\n", 3)

    assert cut.find_context(10) == "thr"
    assert cut.find_context(12) == "two = 2\nthr"
    assert cut.find_context(19) == cut.prefix
