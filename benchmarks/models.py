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

A model folder works if midtoken supports both its model family (`model_type` in `config.json`) and its tokenizer. A
folder that does not work is refused when it is loaded, with one sentence that says why. The reasons below are those
sentences, without their beginning.
"""

_RIGHT = """\
## Families that work

These {num} families give the same answers as transformers. "Refused" names settings with which a model of the family is
refused. A model with longrope RoPE runs up to its original length. Families marked in the third column also run without
PyTorch, on a CPU, in float32 or int8, if the head dimension is a multiple of 16. With a sliding window, which must be
1,024 tokens or more, they run up to its length. If a model of these families needs PyTorch, midtoken says why.
"""

_GGUF = """\
## GGUF files

A GGUF file runs if llama.cpp knows its architecture, and its tokenizer is one of the table below. Windows of any length
run exactly: what a window has passed is kept, because the text may be cut back to there. Tiny files with random weights
were compared with llama.cpp's answers to separate texts (`make gguf`, then `pytest tests/inference/model/gguf`). Of the
models that people install this year:

| models | as a folder | as GGUF |
| --- | --- | --- |
| Qwen3-Coder-30B-A3B | `qwen3_moe` | `qwen3moe` |
| Mellum 2 | `mellum` | `mellum` |
| DeepSeek-Coder-V2-Lite | `deepseek_v2` | `deepseek2` |
| Granite 4 with attention only | `granite`, `granitemoehybrid` | `granite` |
| Seed-Coder | `llama` | `llama` |

Granite 4 H, Qwen3-Coder-Next, Qwen3.5 and Codestral Mamba have [layers with a recurrent
state](#families-with-a-recurrent-state), and run as GGUF files only. Whether any other model runs is said when it
is first loaded.
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

A GGUF file has a precision of its own. A model of 8 bits takes about 1.2 bytes of memory for each weight; `--dtype
int4` takes less. On a GPU, a prompt has at most 8,192 tokens, and with `--engine` 2,048. It has at most as many as the
model was trained on, and as fit six times into half of the memory.

What `midtoken.json` in the model's folder names goes before this (`dtype`, `context_tokens`; the bundled model's names
int8 and 512), and `--dtype`, `--threads`, `--context` and the setting `context` before both. A context that is too
large is refused with one that would fit.
"""

_REFUSED = """\
## Families that are refused

These {num} families are refused when they are loaded.
"""

_STATES = """\
## Families with a recurrent state

A model folder of a family with a recurrent state is refused, as above. A GGUF file of one runs on llama.cpp.
Its state cannot be cut back, so midtoken keeps copies of it at the last words and at some earlier places, and reads
again what was cut back after one of them. There are no draft tokens. If the machine has no memory for 16 copies, the
model is refused, with what they take. Tiny files with random weights complete as if llama.cpp read each text alone
(`make bench-gguf` measures four of them, the tests try all):

| `general.architecture` | known models | layers |
| --- | --- | --- |
| `qwen35` | Qwen3.5 | DeltaNet, attention |
| `qwen35moe` | Qwen3.5 MoE | DeltaNet, attention, experts |
| `qwen3next` | Qwen3-Next, Qwen3-Coder-Next | DeltaNet, attention, experts |
| `mamba` | Mamba | Mamba |
| `mamba2` | Mamba 2, Codestral Mamba | Mamba-2 |
| `granitehybrid` | Granite 4 H | Mamba-2, attention |
| `nemotron_h` | Nemotron-H, Nemotron Nano 2 | Mamba-2, attention |
| `falcon-h1` | Falcon-H1 | Mamba-2 beside attention |
| `jamba` | Jamba | Mamba, attention |
| `lfm2` | LFM2 | short convolutions, attention |
| `lfm2moe` | LFM2 MoE | short convolutions, attention, experts |
| `rwkv6` | RWKV-6 | time mixing |

Other families that llama.cpp runs are judged when a file is loaded, by the logits of a token tree and of the same
texts. A file is refused if

- its tokenizer is refused, as those of RWKV, LFM2 and Falcon-H1 still are, whose pre-tokenizers midtoken does not know;
- its logits are no numbers, or those of a token in a tree differ from those in a text;
- the installed llama.cpp does not have the family, or says why it cannot read it.
"""

_TOKENIZERS = """\
## Tokenizers

Texts were cut at random places. A tokenizer works if the kept tokens were those of the whole text every time. "Bytes
again" is the mean number of bytes that the model generates again. Tokenizers "of GGUF" were read from a GGUF file, and
compared with the published ones.
"""

_METHOD = """\
## How this was tested

Families that people complete code with, and those that were wrong once, are tested with tiny models with random weights
and transformers {version}, {num} model folders in all. For any other family, midtoken makes the same check when
the folder is loaded. Windows, chunks and the original length of scaled RoPE are shorter than the texts. Each family has
a plain folder, and wherever transformers itself can run that, others with each kind of scaled RoPE, with and without a
sliding window, with wider heads, with soft caps, as an encoder, and with the encoder or the vision part that users'
folders have.

- Each folder is loaded with PyTorch, in float32 on the CPU. The tests load the same folders without it, where that runs
  them.
- Several sequences of 3 to {max_tokens} tokens run by turns: prefilled in pieces, with token trees of which a
  path is kept, then token by token up to the last position that the model has. One sequence runs alone, one is a copy
  of another, one comes after the others.
- Each answer is compared with that of transformers with its own plain attention, which runs each text alone. The logits
  may differ by {tolerance:g} of their spread. `benchmarks/results/models.json` has each family's largest difference.
- A refusal must be one line of at most 300 characters that names the family, without an error of a library in it.

Run it again with `make test-models`. It ends with an error if anything is neither right nor refused.
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
    right, refused = ([row for row in families if row.outcome is which] for which in (Outcome.RIGHT, Outcome.REFUSED))
    right_cells = [
        (f"`{row.name}`", FAMILIES[row.name], "yes" if row.name in OWN_FAMILIES else "", ", ".join(row.exceptions))
        for row in right
    ]
    refused_cells = [
        (f"`{row.name}`", FAMILIES[row.name], _shorten(row.reason) + _name_exceptions(row)) for row in refused
    ]
    other_cells = [("none" if row.name == "model_type" else f"`{row.name}`", _shorten(row.reason)) for row in others]
    tokenizer_cells = [
        (row.name, row.source, f"{row.num_cuts:,}", f"{row.mean_healed_bytes or 0:.1f}")
        for row in tokenizers
        if row.outcome is Outcome.RIGHT
    ]
    refused_tokenizers = [(row.name, row.source, row.reason) for row in tokenizers if row.outcome is Outcome.REFUSED]
    num_folders = sum(row.num_folders for row in [*families, *others])
    parts = [
        _INTRODUCTION,
        "**Wrong at the moment:**\n\n" + _build_table(("name", "what is wrong"), wrong)
        if wrong
        else "No tested model or tokenizer gives wrong answers.\n",
        _RIGHT.format(num=len(right)),
        _build_table(("family", "known models", "without PyTorch", "refused"), right_cells),
        _GGUF,
        _RULES,
        _REFUSED.format(num=len(refused)),
        _build_table(("family", "known models", "reason"), refused_cells),
        "Folders that people may try, of families that are not causal decoders in transformers:\n",
        _build_table(("`model_type`", "reason"), other_cells),
        _STATES,
        _TOKENIZERS,
        _build_table(("tokenizer", "from", "cuts", "bytes again"), tokenizer_cells),
        "Tokenizers that are refused:\n",
        _build_table(("tokenizer", "from", "reason"), refused_tokenizers),
        _METHOD.format(version=transformers.__version__, num=num_folders, max_tokens=MAX_TOKENS, tolerance=TOLERANCE),
    ]
    return "\n".join(parts)


def _name_exceptions(row: FamilyRow) -> str:
    return f". Works: {', '.join(row.exceptions)}" if row.exceptions else ""


def _shorten(reason: str) -> str:
    """The refusal without its beginning, which names the folder and the family again."""
    return reason.removeprefix("cannot load the model in DIR: ").split(" cannot be run: ")[-1]


def _build_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None.\n"
    lines = [names, ["---"] * len(names), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    main()
