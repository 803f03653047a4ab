"""Which model families and which tokenizers work: each gives the right answers, or is refused with its reason.

Of some sixty families, tiny models with random weights are written as model folders and loaded as the product loads
them. The product runs several sequences in one pass, and each answer is compared with that of transformers, which runs
each sequence alone. Some sixty tokenizers are compared with the `tokenizers` library.

Writes `docs/models.md` and `benchmarks/results/models.json`, and exits with 1 if anything is neither right nor refused.

    python -m benchmarks.models [--families llama qwen2]
"""

import argparse
import contextlib
import dataclasses
import logging
import multiprocessing
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
import transformers

from benchmarks.corpora.tiny_folder import NUM_SPECIAL_TOKENS, write_folder, write_raw_folder
from benchmarks.corpora.tiny_models import (
    FAMILIES,
    MAX_TOKENS,
    TinyModel,
    build_config,
    list_other_folders,
    list_tiny_models,
)
from benchmarks.measures.family_check import (
    TOLERANCE,
    FamilyResult,
    FamilyRow,
    Reference,
    build_family_row,
    check_folder,
    describe,
)
from benchmarks.measures.models_page import build_page
from benchmarks.measures.report import Outcome, Row, write_report
from benchmarks.measures.tokenizer_check import TokenizerRow, check_tokenizers
from inference.model.pytorch.loader import load_torch_model

_NUM_WORKERS = 2
_PAGE = Path(__file__).parents[1] / "docs" / "models.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*", metavar="FAMILY", choices=FAMILIES, help="these only; writes nothing")
    options = parser.parse_args()
    rows = _check([model for family in options.families or FAMILIES for model in list_tiny_models(family)])
    if options.families:
        sys.exit(_count(rows, Outcome.WRONG) > 0)
    others, tokenizers = _check(list_other_folders()), check_tokenizers(_NUM_WORKERS)
    figures = _build_figures(rows, others, tokenizers)
    write_report("models", [*map(_to_report, [*rows, *others]), *map(dataclasses.asdict, tokenizers)], figures)
    _PAGE.write_text(build_page(rows, others, tokenizers, transformers.__version__, MAX_TOKENS, TOLERANCE))
    print(", ".join(f"{name} {value}" for name, value in figures.items()))
    sys.exit(any(value for name, value in figures.items() if name.endswith("_wrong")))


def _check(models: Sequence[TinyModel]) -> list[FamilyRow]:
    """A row for each family, by name."""
    results: dict[str, dict[str, FamilyResult]] = defaultdict(dict)
    with ProcessPoolExecutor(_NUM_WORKERS, multiprocessing.get_context("spawn")) as workers:
        for model, result in zip(models, workers.map(_check_tiny_model, models), strict=True):
            print(f"{model.family:20} {model.variant:30} {result.outcome:10} {result.reason}", flush=True)
            results[model.family][model.variant] = result
    return [build_family_row(family, results[family]) for family in sorted(results)]


def _check_tiny_model(model: TinyModel) -> FamilyResult:
    """Builds the model in a temporary folder, and checks that. Every failure is a result."""
    logging.disable(logging.CRITICAL)  # transformers has much to say about settings of tiny models
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
        folder = Path(name)
        try:
            _write(folder, model)
        except Exception as error:  # the code of some sixty families raises undocumented exceptions
            outcome = Outcome.IMPOSSIBLE if model.may_be_impossible else Outcome.WRONG
            return FamilyResult(outcome, f"the tiny model cannot be built: {describe(error)}")
        return check_folder(folder, model.family, load_torch_model)


def _write(folder: Path, model: TinyModel) -> None:
    if not model.is_built:
        write_raw_folder(folder, model.changes)
        return
    write_folder(folder, build_config(model.family, model.changes), model.class_name)
    if model.may_be_impossible:
        Reference(folder).find_logits(tuple(NUM_SPECIAL_TOKENS + index for index in range(MAX_TOKENS)))


def _build_figures(
    rows: Sequence[FamilyRow], others: Sequence[FamilyRow], tokenizers: Sequence[TokenizerRow]
) -> dict[str, float | bool | None]:
    return {
        "num_families": len(rows),
        "num_right": _count(rows, Outcome.RIGHT),
        "num_refused": _count(rows, Outcome.REFUSED),
        "num_wrong": _count(rows, Outcome.WRONG),
        "num_others": len(others),
        "num_others_wrong": len(others) - _count(others, Outcome.REFUSED),
        "num_folders": sum(row.num_folders for row in [*rows, *others]),
        "num_tokenizers": len(tokenizers),
        "num_tokenizers_wrong": _count(tokenizers, Outcome.WRONG),
    }


def _count(rows: Sequence[FamilyRow] | Sequence[TokenizerRow], outcome: Outcome) -> int:
    return sum(row.outcome is outcome for row in rows)


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
