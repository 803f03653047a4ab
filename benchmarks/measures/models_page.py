"""Writes the page that tells people which models and tokenizers work. The same results give the same page."""

from collections.abc import Sequence

from benchmarks.corpora.tiny_models import FAMILIES
from benchmarks.measures.family_check import FamilyRow
from benchmarks.measures.report import Outcome
from benchmarks.measures.tokenizer_check import TokenizerRow
from inference.model.onnx.decoder_config import FAMILIES as OWN_FAMILIES

_INTRODUCTION = """\
# Which models and tokenizers work

This page is written by `make test-models`. Do not edit it.

A model folder works if two things in it do: the layers of its model, whose family is `model_type` in `config.json`, and
its tokenizer. What does not work is refused when the folder is loaded, in one sentence that says why. The reasons below
are those sentences, without their beginning.
"""

_ALL_WELL = "No model and no tokenizer that was tested gives wrong answers.\n"

_RIGHT = """\
## Families that work

These {num} families give the answers that transformers gives. "Refused" names settings with which a model of the family
is refused. A model with longrope RoPE runs up to its original length. Those marked in the third column run without
PyTorch, on a CPU, in float32 or int8, if the numbers of a head are a multiple of 16; with a sliding window, up to its
length, which must be 1,024 tokens or more. A model of theirs that has what cannot be run that way needs PyTorch, and
says what that is.
"""

_REFUSED = """\
## Families that are refused

These {num} families cannot be run here, and are refused when they are loaded.
"""

_TOKENIZERS = """\
## Tokenizers

Each tokenizer was cut at random places of texts. It works if the kept tokens were those of the whole text every time.
"Bytes again" is the mean number of bytes that the model generates again. Those "of GGUF" were read from a GGUF file,
and are compared with what was published.
"""

_METHOD = """\
## How this was tested

Families that people complete code with, and those that were wrong once, are tested with tiny models with random weights
and transformers {version}, {num} model folders in all. What protects a user of any other family is the same check, when
the folder is loaded. Windows, chunks and the original length of scaled RoPE are shorter than the texts. Each family has
a plain folder, and wherever transformers itself can run that, others with each kind of scaled RoPE, with and without a
sliding window, with wider heads, with soft caps, as an encoder, and with the encoder or the vision part that users'
folders have.

- Each folder is loaded with PyTorch, in float32 on the CPU. The tests load the same folders without it, where that runs
  them.
- Several sequences of 3 to {max_tokens} tokens run in the same passes: prefilled in pieces, with token trees of which a
  path is kept, then token by token up to the last position that the model has. One sequence runs alone, one is a copy
  of another, one comes after the others.
- Each answer is compared with that of transformers with its own plain attention, which runs each text alone. The logits
  may differ by {tolerance:g} of their spread. `benchmarks/results/models.json` has each family's largest difference.
- A refusal must be one line of at most 300 characters that names the family, without an error of a library in it.

Run it again with `make test-models`. It ends with an error if anything is neither right nor refused.
`python -m benchmarks.models --families llama qwen2` checks some families only, and writes nothing.
"""


def build_page(
    families: Sequence[FamilyRow],
    others: Sequence[FamilyRow],
    tokenizers: Sequence[TokenizerRow],
    version: str,
    max_tokens: int,
    tolerance: float,
) -> str:
    """The page. `others`: folders that are no causal decoders. `version`: of transformers."""
    right, refused = _select(families, Outcome.RIGHT), _select(families, Outcome.REFUSED)
    num_folders = sum(row.num_folders for row in [*families, *others])
    parts = [
        _INTRODUCTION,
        *_build_wrong_parts([*families, *others], tokenizers),
        _RIGHT.format(num=len(right)),
        _build_table(("family", "known models", "without PyTorch", "refused"), [_cells_of_right(row) for row in right]),
        _REFUSED.format(num=len(refused)),
        _build_table(("family", "known models", "reason"), [_cells_of_refused(row) for row in refused]),
        "Folders that people may try, of families that are no causal decoders in transformers:\n",
        _build_table(("`model_type`", "reason"), [_cells_of_other(row) for row in _select(others, Outcome.REFUSED)]),
        *_build_tokenizer_parts(tokenizers),
        _METHOD.format(version=version, num=num_folders, max_tokens=max_tokens, tolerance=tolerance),
    ]
    return "\n".join(parts)


def _build_wrong_parts(families: Sequence[FamilyRow], tokenizers: Sequence[TokenizerRow]) -> list[str]:
    wrong = [(_name(row), row.reason) for row in families if row.outcome is Outcome.WRONG]
    wrong += [(row.name, row.reason) for row in tokenizers if row.outcome is Outcome.WRONG]
    return ["**Wrong at the moment:**\n", _build_table(("name", "what is wrong"), wrong)] if wrong else [_ALL_WELL]


def _build_tokenizer_parts(rows: Sequence[TokenizerRow]) -> list[str]:
    right = [row for row in rows if row.outcome is Outcome.RIGHT]
    refused = [row for row in rows if row.outcome is Outcome.REFUSED]
    return [
        _TOKENIZERS,
        _build_table(
            ("tokenizer", "from", "cuts", "bytes again"),
            [(row.name, row.source, f"{row.num_cuts:,}", _format_mean(row.mean_healed_bytes)) for row in right],
        ),
        "Tokenizers that are refused:\n",
        _build_table(("tokenizer", "from", "reason"), [(row.name, row.source, row.reason) for row in refused]),
    ]


def _cells_of_right(row: FamilyRow) -> tuple[str, ...]:
    return (_name(row), FAMILIES[row.name], "yes" if row.name in OWN_FAMILIES else "", ", ".join(row.exceptions))


def _cells_of_refused(row: FamilyRow) -> tuple[str, ...]:
    exceptions = f". Works: {', '.join(row.exceptions)}" if row.exceptions else ""
    return (_name(row), FAMILIES[row.name], _shorten(row.reason) + exceptions)


def _cells_of_other(row: FamilyRow) -> tuple[str, ...]:
    return ("none" if row.name == "model_type" else _name(row), _shorten(row.reason))


def _select(rows: Sequence[FamilyRow], outcome: Outcome) -> list[FamilyRow]:
    return [row for row in rows if row.outcome is outcome]


def _name(row: FamilyRow) -> str:
    return f"`{row.name}`"


def _shorten(reason: str) -> str:
    """The refusal without its beginning, which names the folder and the family again."""
    return reason.removeprefix("cannot load the model in DIR: ").split(" cannot be run: ")[-1]


def _format_mean(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _build_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None.\n"
    lines = [names, ["---"] * len(names), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
