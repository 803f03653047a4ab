"""Which model families work: each gives the right answers, or is refused with its reason.

Of some sixty families, tiny models with random weights are written as model folders and loaded as the product loads
them. A sequence is prefilled in pieces, with token trees, then decoded, up to the end of its window, and each row of
logits is compared with that of transformers, which reads the whole text alone.

Exits with 1 if anything is neither right nor refused, or docs/models.md lists other families.

    python -m benchmarks.models [--families llama qwen2] [--short]
"""

import argparse
import contextlib
import json
import logging
import math
import multiprocessing
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import transformers

from benchmarks.corpora.tiny_models import (
    FAMILIES,
    MAX_TOKENS,
    PLAIN,
    TinyModel,
    build_config,
    list_other_folders,
    list_tiny_models,
)
from benchmarks.measures.report import SHORT_DIR, Measured, Report, Row, Stamp
from inference.config import EngineConfig
from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import LoadedModel, SequencePart
from inference.model.pytorch.loader import load_torch_model
from inference.model.pytorch.model import TorchModel
from tests.support.decoder_folders import DecoderOracle
from tests.support.runners import CheckedSequence
from tests.support.toys import toy_tokenizer

_NUM_WORKERS = 2
_SHORT_FAMILIES, _NUM_SHORT = ("llama", "qwen2"), 2  # folders of each
_PAGE = Path(__file__).parents[1] / "docs" / "models.md"
_MAX_SENTENCE = 300
_TOLERANCE = 3e-3  # of the spread of the logits; rounding gives 1e-6 to 1e-4, a wrong mask or position over 1e-2
_GAIN = 2.0  # of each layer; with less, attention is so even that a wrong mask hardly shows
_PIECE = 23  # tokens that are prefilled in one pass
_NUM_GROWN = 16  # tokens that follow the prefill; more than the trees add
_PARENTS = (None, 0, None, 2, 2)  # of the branches of each tree
_KEPT_NODES = (4, 1, None)  # the nodes whose paths are kept, in turn


class Outcome(StrEnum):
    """What became of a model folder."""

    RIGHT = "right"
    REFUSED = "refused"
    WRONG = "wrong"
    IMPOSSIBLE = "impossible"  # transformers cannot run it either


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*", choices=FAMILIES, metavar="FAMILY", help="these only; writes nothing")
    parser.add_argument("--short", action="store_true", help="two folders of two families")
    options, stamp = parser.parse_args(), Stamp.take()
    num_folders = _NUM_SHORT if options.short else None
    families = options.families or (_SHORT_FAMILIES if options.short else FAMILIES)
    rows = _check([model for family in families for model in list_tiny_models(family)[:num_folders]])
    others = [] if options.families else _check(list_other_folders()[:num_folders])
    outcomes = [row["outcome"] for row in rows]
    figures = {"num_families": len(rows)} | {f"num_{each}": outcomes.count(each) for each in [*Outcome][:3]}
    if not options.families:
        report = Report("models", ["all"], folder=SHORT_DIR) if options.short else Report("models", ["all"])
        report.write("all", Measured(figures, [*rows, *others]), stamp)
    listed = set(re.findall(r"`([\w-]+)`", _PAGE.read_text().split("\n## Families that ")[1]))
    unlisted = [row["family"] for row in rows if (row["outcome"] == Outcome.RIGHT) != (row["family"] in listed)]
    sys.exit(
        f"docs/models.md is not true of {unlisted}"
        if unlisted
        else figures["num_wrong"] or any(row["outcome"] != Outcome.REFUSED for row in others)
    )


def _check(models: Sequence[TinyModel]) -> list[Row]:
    """Returns a row for each family: WRONG if any folder is, otherwise what became of the plain one."""
    found: dict[str, dict[str, tuple[Outcome, str]]] = defaultdict(dict)
    with ProcessPoolExecutor(_NUM_WORKERS, multiprocessing.get_context("spawn")) as workers:
        for model, result in zip(models, workers.map(_check_folder, models), strict=True):
            print(f"{model.family:20} {model.variant:30} {result[0]:10} {result[1]}", flush=True)
            if result[0] is not Outcome.IMPOSSIBLE:
                found[model.family][model.variant] = result
    rows: list[Row] = []
    for family, results in sorted(found.items()):
        outcome, reason = next((each for each in results.values() if each[0] is Outcome.WRONG), results[PLAIN])
        others = sorted(variant for variant, each in results.items() if each[0] is not results[PLAIN][0])
        rows.append(
            {"family": family, "outcome": str(outcome), "folders": len(results), "otherwise": ", ".join(others),
             "reason": reason}
        )  # fmt: skip
    return rows


def _check_folder(model: TinyModel) -> tuple[Outcome, str]:
    """What became of the folder, and the refusal or what is wrong. The code of sixty families raises anything."""
    logging.disable(logging.CRITICAL)  # transformers has much to say about settings of tiny models
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
        folder = Path(name)
        try:
            _write_folder(folder, model)
            if model.is_built and model.may_be_impossible:
                DecoderOracle(folder, "float32").forward(range(8, 8 + MAX_TOKENS))
        except Exception as error:
            return (Outcome.IMPOSSIBLE if model.may_be_impossible else Outcome.WRONG), f"cannot be built: {error!r}"
        try:
            loaded = load_torch_model(EngineConfig(folder))
        except ModelError as error:
            sentence = str(error).replace(name, "DIR")
            is_fit = model.family in sentence and len(sentence) <= _MAX_SENTENCE and "\n" not in sentence
            return (Outcome.REFUSED if is_fit else Outcome.WRONG), sentence
        except Exception as error:
            return Outcome.WRONG, f"loading raised {error!r}"
        try:
            _run(loaded, DecoderOracle(folder, "float32"))
        except Exception as error:
            return Outcome.WRONG, " ".join(f"{error!r}".split())[:_MAX_SENTENCE]
        return Outcome.RIGHT, ""


def _write_folder(folder: Path, model: TinyModel) -> None:
    toy_tokenizer("qwen").tokenizer.save(str(folder / "tokenizer.json"))
    if not model.is_built:
        (folder / "config.json").write_text(json.dumps(model.changes))
        (folder / "model.safetensors").touch()
        return
    config = build_config(model.family, model.changes)
    torch.manual_seed(0)
    whole = getattr(transformers, model.class_name or "", None)
    built = transformers.AutoModelForCausalLM.from_config(config) if whole is None else whole(config)
    with torch.no_grad():  # also norms and sinks are random, so that no zero or one hides a difference
        for weight in built.parameters():
            noise = torch.randn(weight.shape)
            weight.add_(0.2 * noise) if weight.ndim < 2 else weight.copy_(noise * _GAIN / math.sqrt(weight.shape[-1]))
    built.save_pretrained(folder)
    if built.config.model_type != config.model_type:  # the class has written only its part of the configuration
        config.architectures = [type(built).__name__]
        config.save_pretrained(folder)


def _run(loaded: LoadedModel[TorchModel], oracle: DecoderOracle) -> None:
    """Raises AssertionError if a row is not that of the oracle."""
    model, ids, rng = loaded.model, loaded.tokenizer.trie.order, np.random.default_rng(0)
    [[first]] = model.forward([SequencePart(model.new_cache(), TokenTree((int(ids[0]),)))])
    is_token = ~np.isneginf(first.to_host())
    num_prefilled = min(model.max_tokens, MAX_TOKENS) - _NUM_GROWN
    drawn = rng.choice(ids, 200).tolist()

    def find_logits(text: Sequence[int]) -> npt.NDArray[np.float64]:
        return np.where(is_token, oracle.forward(text), -np.inf)

    gap = _TOLERANCE * float(oracle.forward(drawn[:1])[is_token].std())
    sequence = CheckedSequence(model, find_logits, gap)
    for start in range(0, num_prefilled, _PIECE):
        sequence.read(*drawn[start : min(start + _PIECE, num_prefilled)])
    for node in _KEPT_NODES:
        tree = TokenTree(tuple(drawn[-1:]), tuple(drawn[-6:-1]), _PARENTS)
        sequence.forward(tree)
        sequence.keep(tree, node)
        del drawn[-6:]
    while len(sequence.kept) < num_prefilled + _NUM_GROWN:
        sequence.read(drawn.pop())


if __name__ == "__main__":
    main()
