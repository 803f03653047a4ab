"""Rows of families, and the page that people read."""

from benchmarks.corpora.families.tiny_variants import PLAIN
from benchmarks.measures.families.family_check import FamilyResult, Outcome
from benchmarks.measures.families.family_rows import FamilyRow, build_family_row, count
from benchmarks.measures.models_page import build_page
from benchmarks.measures.tokenizers.tokenizer_check import TokenizerRow

_RIGHT = FamilyResult(Outcome.RIGHT, "", 1e-6, 100)
_REFUSED = FamilyResult(Outcome.REFUSED, "cannot load the model in DIR: models of the family 'x' cannot be run: a | b")
_WRONG = FamilyResult(Outcome.WRONG, "together: the logits differ", 0.5, 100)
_IMPOSSIBLE = FamilyResult(Outcome.IMPOSSIBLE, "cannot be built")


def _build_page(*rows: FamilyRow) -> str:
    tokenizers = [
        TokenizerRow("gpt2", "trained here", "right", "", 3000, 4.25),
        TokenizerRow("bert", "trained here", "refused", "WordPiece", 0, None),
    ]
    return build_page(rows, [], tokenizers, "5.0", 128, 1e-4)


def test_a_wrong_variant_makes_the_family_wrong() -> None:
    row = build_family_row("x", {PLAIN: _RIGHT, "window": _WRONG})

    assert (row.outcome, row.reason) == (Outcome.WRONG, "window: together: the logits differ")


def test_a_variant_with_another_outcome_is_an_exception() -> None:
    assert build_family_row("x", {PLAIN: _RIGHT, "window": _REFUSED}).exceptions == ("window",)
    assert build_family_row("x", {PLAIN: _REFUSED, "window": _RIGHT}).exceptions == ("window",)


def test_what_transformers_cannot_run_does_not_count() -> None:
    row = build_family_row("x", {PLAIN: _RIGHT, "window": _IMPOSSIBLE})

    assert (row.outcome, row.exceptions, row.num_folders) == (Outcome.RIGHT, (), 1)


def test_the_largest_difference_is_that_of_all_variants() -> None:
    other = FamilyResult(Outcome.RIGHT, "", 3e-6, 100)

    assert build_family_row("x", {PLAIN: _RIGHT, "window": other}).largest_difference == 3e-6


def test_outcomes_are_counted() -> None:
    rows = [build_family_row("x", {PLAIN: result}) for result in (_RIGHT, _RIGHT, _REFUSED)]

    assert (count(rows, Outcome.RIGHT), count(rows, Outcome.REFUSED), count(rows, Outcome.WRONG)) == (2, 1, 0)


def test_the_page_has_families_with_their_exceptions_and_reasons_as_the_product_says_them() -> None:
    page = _build_page(
        build_family_row("llama", {PLAIN: _RIGHT, "window": _REFUSED}), build_family_row("mamba", {PLAIN: _REFUSED})
    )

    assert "| `llama` | Llama 2 and 3, Code Llama, DeepSeek-Coder, Yi-Coder, Seed-Coder | window |" in page
    assert "| `mamba` | Mamba | a \\| b |" in page
    assert "| gpt2 | trained here | 3,000 | 4.2 |" in page
    assert "| bert | trained here | WordPiece |" in page
    assert "No model and no tokenizer that was tested gives wrong answers." in page


def test_the_page_does_not_hide_what_is_wrong() -> None:
    page = _build_page(build_family_row("llama", {PLAIN: _WRONG}))

    assert "gives wrong answers" not in page
    assert "**Wrong at the moment:**" in page
    assert "| `llama` | plain: together: the logits differ |" in page
