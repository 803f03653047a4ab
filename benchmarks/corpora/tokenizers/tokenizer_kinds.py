"""All kinds of small tokenizers, by name."""

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.corpora.tokenizers.kinds.added import ADDED_TOKEN_KINDS
from benchmarks.corpora.tokenizers.kinds.byte_level import BYTE_LEVEL_KINDS
from benchmarks.corpora.tokenizers.kinds.normalized import NORMALIZED_KINDS
from benchmarks.corpora.tokenizers.kinds.sentencepiece import SENTENCEPIECE_KINDS
from benchmarks.corpora.tokenizers.kinds.settings import SETTING_KINDS
from benchmarks.corpora.tokenizers.kinds.training import END, SENTENCEPIECE_END, Json, TokenizerKind

TOKENIZER_KINDS: tuple[TokenizerKind, ...] = (
    *BYTE_LEVEL_KINDS,
    *SENTENCEPIECE_KINDS,
    *NORMALIZED_KINDS,
    *ADDED_TOKEN_KINDS,
    *SETTING_KINDS,
)


def write_kind(kind: TokenizerKind, folder: Path) -> Path:
    """Writes the tokenizer's files as a model folder has them. Returns the folder."""
    spec = kind.build()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    names = {added["content"] for added in spec["added_tokens"]}
    end = END if END in names else SENTENCEPIECE_END
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}), encoding="utf-8")
    return folder


def describe_kind(kind: TokenizerKind) -> str:
    """The parts of the tokenizer, as its file names them."""
    spec = kind.build()
    names = [*_iter_names(spec["normalizer"]), *_iter_names(spec["pre_tokenizer"]), spec["model"]["type"]]
    return "built: " + ", ".join(names)


def _iter_names(step: Json) -> Iterator[str]:
    if step is not None and step["type"] == "Sequence":
        for inner in step.get("normalizers", step.get("pretokenizers")):
            yield from _iter_names(inner)
    elif step is not None:
        yield step["type"]
