"""One row for each model family, from the results of its folders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.corpora.families.tiny_variants import PLAIN
from benchmarks.measures.families.family_check import FamilyResult, Outcome


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """What is known of a family."""

    name: str
    outcome: Outcome  # WRONG if any folder is, otherwise that of the plain one
    reason: str  # of the refusal, or what is wrong; empty if right
    exceptions: tuple[str, ...]  # the variants with another outcome than the plain folder
    num_folders: int  # that transformers can run, and that were checked
    largest_difference: float | None  # between logits, as a share of their spread


def build_family_row(name: str, results: Mapping[str, FamilyResult]) -> FamilyRow:
    """The row of the family whose folders have these results, by variant."""
    checked = {variant: result for variant, result in results.items() if result.outcome is not Outcome.IMPOSSIBLE}
    plain = results[PLAIN]
    wrong = [f"{variant}: {result.reason}" for variant, result in checked.items() if result.outcome is Outcome.WRONG]
    return FamilyRow(
        name,
        Outcome.WRONG if wrong else plain.outcome,
        wrong[0] if wrong else plain.reason,
        tuple(sorted(variant for variant, result in checked.items() if result.outcome is not plain.outcome)),
        len(checked),
        max((result.difference for result in checked.values() if result.difference is not None), default=None),
    )


def count(rows: Sequence[FamilyRow], outcome: Outcome) -> int:
    """The number of families with this outcome."""
    return sum(row.outcome is outcome for row in rows)
