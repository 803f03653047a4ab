import pytest

from benchmarks.corpora.cuts import Cut, Gap, GapKind, draw_cuts_by_offset, draw_cuts_in_identifiers
from models.training.corpus import SourceFile


@pytest.mark.parametrize(
    ("completion", "is_rest"),
    [("de", True), ("de + 1", True), ("de(", True), ("des", False), ("d", False), ("", False), (" de", False)],
)
def test_an_identifier_is_filled_by_exactly_its_rest(completion: str, is_rest: bool) -> None:
    assert Cut("identifier", "file.py", "x = no", "de", " + 1\n").is_solved_by(completion) == is_rest
    assert Gap(GapKind.IDENTIFIER, "x = no", "de", " + 1\n").is_filled_by(completion) == is_rest


def test_a_line_is_filled_by_the_whole() -> None:
    gap = Gap(GapKind.LINE, "n", "ame", "\n")
    assert [gap.is_filled_by(completion) for completion in ("ame ", "ame(")] == [True, False]


@pytest.mark.parametrize(
    ("path", "comment", "imported", "line", "long_name"),
    [
        ("a.py", "#", "from other import (\n    Strange,\n)\n", "né = node_counter  # a comment\n", "node_counter"),
        ("a.ts", "//", 'import {Strange} from "other"\n', "const né = this.nodeCounter // a comment\n", "nodeCounter"),
        ("a.go", "//", 'import strange "other"\n', "var né = w.nodeCounter // a comment\n", "nodeCounter"),
    ],
)
def test_cursors_are_inside_names_that_are_not_imported_in_each_language(
    path: str, comment: str, imported: str, line: str, long_name: str
) -> None:
    file = SourceFile("here", path, f"{comment} some documentation of it\n" * 30 + (imported + line) * 20)

    cuts = [*draw_cuts_by_offset([file], 10, 1), *draw_cuts_in_identifiers([file], 30, 1)]

    assert {cut.prefix.split()[-1].split(".")[-1] + cut.run_end for cut in cuts} == {"né", long_name}
