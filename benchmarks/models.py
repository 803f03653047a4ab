"""Which model families and which tokenizers work: each gives the right answers, or is refused with its reason.

For every causal decoder family that transformers knows, tiny models with random weights are written as model folders
and loaded as the product loads them. The product runs several sequences in one pass, and transformers, running each
sequence alone, judges every answer. Tokenizers are judged by the `tokenizers` library.

Writes `docs/models.md` and `benchmarks/results/models.json`, and exits with 1 if anything is neither right nor refused.

    python -m benchmarks.models [--families llama qwen2] [--workers 2]
"""

import argparse
import dataclasses
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import transformers

from benchmarks.corpora.families.tiny_config import MAX_TOKENS
from benchmarks.corpora.families.tiny_families import list_families
from benchmarks.corpora.families.tiny_variants import TinyModel, list_other_folders, list_tiny_models
from benchmarks.measures.families.family_check import TOLERANCE, FamilyResult, Outcome
from benchmarks.measures.families.family_rows import FamilyRow, build_family_row, count
from benchmarks.measures.families.tiny_model_check import check_tiny_model, silence_transformers
from benchmarks.measures.families.worker_pool import Lost, run_in_workers
from benchmarks.measures.models_page import build_page
from benchmarks.measures.report import Row, write_report
from benchmarks.measures.tokenizers.tokenizer_check import TokenizerRow, check_tokenizers

_PAGE = Path(__file__).parents[1] / "docs" / "models.md"
_MAX_SECONDS = 120.0  # for one folder; the slowest takes two seconds on an idle core


def main() -> None:
    options = _parse_options()
    silence_transformers()
    families = [model for family in options.families or list_families() for model in list_tiny_models(family)]
    rows = _check(families, options.workers)
    if options.families:
        sys.exit(count(rows, Outcome.WRONG) > 0)
    others = _check(list_other_folders(), options.workers)
    tokenizers = check_tokenizers()
    figures = _build_figures(rows, others, tokenizers)
    write_report("models", [*map(_to_report, [*rows, *others]), *map(dataclasses.asdict, tokenizers)], figures)
    _PAGE.write_text(build_page(rows, others, tokenizers, transformers.__version__, MAX_TOKENS, TOLERANCE))
    print(", ".join(f"{name} {value}" for name, value in figures.items()))
    sys.exit(any(value for name, value in figures.items() if name.endswith("_wrong")))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*", metavar="FAMILY", help="check these only, and write nothing")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    unknown = sorted(set(options.families or ()) - set(list_families()))
    if unknown:
        parser.error(f"transformers knows no causal decoder of the family {unknown[0]!r}")
    return options


def _check(models: Sequence[TinyModel], num_workers: int) -> list[FamilyRow]:
    """A row for each family, by name. Each is printed when its last folder is done."""
    waiting = Counter(model.family for model in models)
    results: dict[str, dict[str, FamilyResult]] = defaultdict(dict)
    rows = []
    for model, result in run_in_workers(check_tiny_model, models, num_workers, _MAX_SECONDS):
        if isinstance(result, Lost):
            result = FamilyResult(Outcome.WRONG, result.reason)
        results[model.family][model.variant] = result
        waiting[model.family] -= 1
        if not waiting[model.family]:
            rows.append(build_family_row(model.family, results[model.family]))
            _print_progress(rows[-1], len(rows), len(waiting))
    return sorted(rows, key=lambda row: row.name)


def _print_progress(row: FamilyRow, num_done: int, num_all: int) -> None:
    exceptions = f" (otherwise: {', '.join(row.exceptions)})" if row.exceptions else ""
    folders = "1 folder" if row.num_folders == 1 else f"{row.num_folders} folders"
    print(f"{num_done:3}/{num_all} {row.name:26} {row.outcome:8} {folders}{exceptions} {row.reason}", flush=True)


def _build_figures(
    rows: Sequence[FamilyRow], others: Sequence[FamilyRow], tokenizers: Sequence[TokenizerRow]
) -> dict[str, float | bool | None]:
    return {
        "num_families": len(rows),
        "num_right": count(rows, Outcome.RIGHT),
        "num_refused": count(rows, Outcome.REFUSED),
        "num_wrong": count(rows, Outcome.WRONG),
        "num_others": len(others),
        "num_others_wrong": len(others) - count(others, Outcome.REFUSED),
        "num_folders": sum(row.num_folders for row in [*rows, *others]),
        "num_tokenizers": len(tokenizers),
        "num_tokenizers_wrong": sum(row.outcome == "wrong" for row in tokenizers),
    }


def _to_report(row: FamilyRow) -> Row:
    return {
        "family": row.name,
        "outcome": str(row.outcome),
        "folders": row.num_folders,
        "otherwise": ", ".join(row.exceptions),
        "largest difference": None if row.largest_difference is None else float(f"{row.largest_difference:.1g}"),
        "reason": row.reason,
    }


if __name__ == "__main__":
    main()
