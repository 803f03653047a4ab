"""Which model families and which tokenizers work: each gives the right answers, or is refused with its reason.

Of some sixty families, tiny models with random weights are written as model folders and loaded as the product loads
them. The product runs several sequences in one pass, and each answer is compared with that of transformers, which runs
each sequence alone. Some sixty tokenizers are compared with the `tokenizers` library.

Writes `docs/models.md` and `benchmarks/results/models.json`, and exits with 1 if anything is neither right nor refused.

    python -m benchmarks.models [--families llama qwen2] [--short]
"""

import argparse
import contextlib
import dataclasses
import logging
import multiprocessing
import re
import sys
import tempfile
import textwrap
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
    build_family_row,
    check_folder,
    compute_logits,
    describe,
    load_reference,
)
from benchmarks.measures.report import SHORT_DIR, Measured, Outcome, Report, Row, Stamp, Value
from benchmarks.measures.tokenizer_check import TokenizerRow, check_tokenizers
from inference.model.onnx.decoder_config import FAMILIES as OWN_FAMILIES
from inference.model.pytorch.loader import load_torch_model

_NUM_WORKERS = 2
_SHORT_FAMILIES, _NUM_SHORT = ("llama", "qwen2"), 2  # folders of each, and tokenizers
_PAGE = Path(__file__).parents[1] / "docs" / "models.md"

_INTRODUCTION = """\
# Which models and tokenizers work

This page is written by `make test-models`. Do not edit it.

A model folder works if midtoken supports its family (`model_type` in `config.json`) and its tokenizer. Any other is
refused when it is loaded, with one sentence that says why. The reasons below are from those sentences, shortened.
"""

_RIGHT = """\
## Families that work

These {num} families give the same answers as transformers. A model with longrope RoPE runs up to its original length.
"""

_OWN = """\
Some also run without PyTorch, on a CPU, if the head dimension is a multiple of 16. With a sliding window, which must be
1,024 tokens or more, they run up to its length:
"""

_RULES = """\
## Precision, threads and window

On a CPU, they follow from the number of weights. The server's log, `midtoken doctor` and the editor's message on start
say what was chosen.

| weights | precision | threads | tokens of a prompt |
| --- | --- | --- | --- |
| up to 100 million | float32 | 1 | 8,192 |
| up to 1.6 billion | int8 | all cores but one; of two, both | 2,048 |
| more | int8 | all cores but one; of two, both | 1,024 |

A GGUF file has a precision of its own. A model of 8 bits takes about 1.2 bytes of memory for each weight;
`--dtype int4` takes less. On a GPU, a prompt has at most 8,192 tokens, and with `--engine` 2,048. It never has more
than the model was trained on, or than fit six times into half of the memory.

`midtoken.json` in the model's folder (`dtype`, `context_tokens`; the bundled model's has int8 and 512) overrides this,
and `--dtype`, `--threads`, `--context` and the setting `context` override both. A context that is too large is refused
with one that would fit.
"""

_REFUSED = """\
## Families that are refused
"""

_GGUF = """\
## GGUF files

A GGUF file runs if llama.cpp knows its architecture and midtoken its tokenizer. Windows of any length run exactly.
Encoders (BERT, T5) are refused, and so is a file whose logits are no numbers, or for a token in a tree other than in a
text.

### Families with a recurrent state

Their model folders are refused, as above; their GGUF files run. A state cannot be cut back, so midtoken keeps copies
of it at the last words and at some earlier places, and reads again what was cut back after one of them. There are no
draft tokens. A model is refused if the machine has no memory for 16 copies. Tested with tiny files: Qwen3.5 (also MoE),
Qwen3-Next and Qwen3-Coder-Next, Mamba, Mamba 2 and Codestral Mamba, Granite 4 H, Nemotron-H, Jamba, LFM2 MoE. The
published tokenizers of RWKV, LFM2 and Falcon-H1 are refused: midtoken does not know their pre-tokenizers.
"""

_TOKENIZERS = """\
## Tokenizers

A tokenizer works if the kept tokens were those of the whole text at each of {cuts:,} random cuts. These published ones
work. The numbers are the bytes that the model generates again on average, in brackets if it is read from a GGUF file:
"""

_BUILT = """\
A character that a vocabulary cannot spell is read as U+FFFD, or as a blank if it cannot spell that either. A request is
refused only if the character is among the bytes that the model has to generate again.

Of tokenizers that were built with one special feature each, {num_right} work. {num_refused} are refused by name, for
example because a step changes or drops typed text, some bytes have no token, or the model is no BPE.
"""

_METHOD = """\
## How this was tested

{num} model folders with random weights were compared with transformers {version}: each family plain, with each kind of
scaled RoPE, with and without a sliding window, with wider heads, with soft caps, as an encoder. Sequences of up to
{max_tokens} tokens are prefilled in pieces, with token trees, then decoded. The logits may differ by {tolerance:g} of
their spread. For any other family, midtoken makes such a check when the folder is loaded.

`python -m benchmarks.models --families llama qwen2` checks some families only, and writes nothing.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*", metavar="FAMILY", choices=FAMILIES, help="these only; writes nothing")
    parser.add_argument(
        "--short", action="store_true", help="two folders of two families, two tokenizers; writes no page"
    )
    options, stamp = parser.parse_args(), Stamp.take()
    families = options.families or (_SHORT_FAMILIES if options.short else FAMILIES)
    num_folders = _NUM_SHORT if options.short else None
    rows = _check([model for family in families for model in list_tiny_models(family)[:num_folders]])
    if options.families:
        sys.exit(_count(rows, Outcome.WRONG) > 0)
    others = _check(list_other_folders()[:num_folders])
    tokenizers = check_tokenizers(_NUM_WORKERS, num_folders)
    figures: dict[str, Value] = {
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
    found = Measured(figures, [*map(_to_report, [*rows, *others]), *map(dataclasses.asdict, tokenizers)])
    report = Report("models", ["all"], folder=SHORT_DIR) if options.short else Report("models", ["all"])
    report.write("all", found, stamp)
    report.print("all", found)
    if not options.short:
        _PAGE.write_text(_build_page(rows, others, tokenizers))
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
        compute_logits(load_reference(folder), tuple(NUM_SPECIAL_TOKENS + index for index in range(MAX_TOKENS)))


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


def _build_page(families: Sequence[FamilyRow], others: Sequence[FamilyRow], tokenizers: Sequence[TokenizerRow]) -> str:
    """What people read of the models and tokenizers that work. `others`: folders that are no causal decoders."""
    checked: list[FamilyRow | TokenizerRow] = [*families, *others, *tokenizers]
    wrong = [(row.name, row.reason) for row in checked if row.outcome is Outcome.WRONG]
    right = [row for row in families if row.outcome is Outcome.RIGHT]
    own = [_name_family(row, "refused") for row in right if row.name in OWN_FAMILIES]
    torch_only = [_name_family(row, "refused") for row in right if row.name not in OWN_FAMILIES]
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in [*families, *others]:
        if row.outcome is Outcome.REFUSED:
            reasons[_shorten(row.reason)].append(_name_family(row, "works"))
    built = [row for row in tokenizers if row.source.startswith("built: ")]
    published = [row for row in tokenizers if row not in built]
    from_gguf = {row.name: row for row in published}
    found = [
        _describe_bytes(row, from_gguf.get(f"{row.name}, of GGUF"))
        for row in published
        if not row.name.endswith(", of GGUF") and row.outcome is Outcome.RIGHT
    ]
    refused_names = [
        f"`{row.name}` is refused: {row.reason.removeprefix('tokenizer.json: ')}.\n"
        for row in published
        if row.outcome is Outcome.REFUSED
    ]
    parts = [
        _INTRODUCTION,
        "**Wrong at the moment:**\n\n" + _build_table(("name", "what is wrong"), wrong)
        if wrong
        else "No tested model or tokenizer gives wrong answers.\n",
        _RIGHT.format(num=len(right)),
        _OWN,
        _join(own),
        "With PyTorch:\n",
        _join(torch_only),
        _REFUSED,
        _build_table(("families", "reason"), [(", ".join(names), reason) for reason, names in reasons.items()]),
        _GGUF,
        _RULES,
        _TOKENIZERS.format(cuts=max((row.num_cuts for row in tokenizers), default=0)),
        _join(found),
        *refused_names,
        _BUILT.format(
            num_right=sum(row.outcome is Outcome.RIGHT for row in built),
            num_refused=sum(row.outcome is Outcome.REFUSED for row in built),
        ),
        _METHOD.format(
            version=transformers.__version__,
            num=sum(row.num_folders for row in [*families, *others]),
            max_tokens=MAX_TOKENS,
            tolerance=TOLERANCE,
        ),
    ]
    return "\n".join(parts)


def _name_family(row: FamilyRow, otherwise: str) -> str:
    """The family, the models that people know of it, and its variants that are not as the plain one."""
    if row.name == "model_type":
        return "none"
    notes = [FAMILIES.get(row.name, ""), f"{otherwise}: {' and '.join(row.exceptions)}" if row.exceptions else ""]
    known = "; ".join(note for note in notes if note)
    return f"`{row.name}` ({known})" if known else f"`{row.name}`"


def _describe_bytes(row: TokenizerRow, from_gguf: TokenizerRow | None) -> str:
    """The mean number of bytes that are generated again."""
    again = [f"{each.mean_healed_bytes or 0:.1f}" for each in (row, from_gguf) if each is not None]
    return f"{row.name} {again[0]}" + (f" ({again[1]})" if again[1:] else "")


def _join(names: Sequence[str]) -> str:
    return textwrap.fill(", ".join(names) + ".", width=120, break_long_words=False, break_on_hyphens=False) + "\n"


def _shorten(reason: str) -> str:
    """The refusal without its beginning, which names the folder and the family again, and without what explains it."""
    named = reason.removeprefix("cannot load the model in DIR: ").split(" cannot be run: ")[-1]
    return re.split(r", (?:and|or|so|which) |: ", named)[0]


def _build_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None.\n"
    lines = [names, ["---"] * len(names), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    main()
