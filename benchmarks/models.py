"""Which model families and which tokenizers work: each gives the right answers, or is refused with its reason.

For every causal decoder family that transformers knows, tiny models with random weights are written as model folders and
loaded as the product loads them. The product then runs several sequences in one pass; transformers, running each sequence
alone, judges every answer. Writes `docs/models.md`, and exits with 1 if anything is wrong.

    python -m benchmarks.models [--families llama qwen2] [--workers 2]
"""

import argparse
import sys

from benchmarks.corpora.tiny_families import list_families
from benchmarks.corpora.tiny_variants import PLAIN, TinyModel, list_tiny_models
from benchmarks.measures.family_check import FamilyResult, Outcome
from benchmarks.measures.tiny_model_check import check_tiny_model
from benchmarks.measures.worker_pool import Lost, run_in_workers

_MAX_SECONDS = 120  # for one tiny model; the slowest takes two seconds on an idle core


def main() -> None:
    options = _parse_options()
    families = options.families or list_families()
    models = [model for family in families for model in list_tiny_models(family)]
    results = {}
    for model, result in run_in_workers(check_tiny_model, models, options.workers, _MAX_SECONDS):
        if isinstance(result, Lost):
            result = FamilyResult(Outcome.WRONG, result.reason)
        results[model.family, model.variant] = result
        d = "" if result.difference is None else f"{result.difference:.1e}"
        print(f"{len(results)}/{len(models)} {result.outcome:10s} {model.family:24s} {model.variant:20s} {d} {result.reason}", flush=True)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*", metavar="FAMILY", help="check these only, and write nothing")
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
