import pytest

from benchmarks.corpora.cuts import Gap, GapKind


@pytest.mark.parametrize(
    ("around", "middle", "completion", "is_repeat"),
    [
        ("f(|)\n", "x", "x)", True),
        ("f(|)\n", "x", "g(x)", False),
        ("f(g(|)\n", "x)", "y)", False),  # the middle ends so too
        ("f(g(|)\n", "h(x))", "x)", False),
        ("f.re|()\n", "ad", "ad()", True),
        ("x = |\n    pass\n", "1", "1\n    pass", True),
        ("x = |\n    pass\n", "1", "1\npass", False),
        ("    |\n\n    return x\n", "y()", "return x", True),
        ("    |\n\n    return x\n", "return x", "return x", False),
    ],
)
def test_a_repeat_is_the_suffixs_first_line_at_the_end(
    around: str, middle: str, completion: str, is_repeat: bool
) -> None:
    prefix, suffix = around.split("|")

    assert Gap(GapKind.LINE, prefix, middle, suffix).is_repeated_by(completion) == is_repeat


@pytest.mark.parametrize(
    ("kind", "completion", "is_filled"),
    [
        (GapKind.IDENTIFIER, "ame(", True),
        (GapKind.IDENTIFIER, "ames(", False),
        (GapKind.LINE, "ame ", True),
        (GapKind.LINE, "ame(", False),
    ],
)
def test_an_identifier_is_filled_by_its_rest_and_a_line_by_the_whole(
    kind: GapKind, completion: str, is_filled: bool
) -> None:
    assert Gap(kind, "n", "ame", "\n").is_filled_by(completion) == is_filled
