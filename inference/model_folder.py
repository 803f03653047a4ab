"""A model folder: its files, or in one sentence what it is or has in their place.

The file `midtoken.json` says what suits the model best; settings go before it.

    {"fill_in": {"layout": "spm"}, "dtype": "int8", "context_tokens": 512, "languages": ["python"]}

`fill_in` is how the model is given the text after the cursor (`inference.engine.fill_in`), `dtype` the
type of numbers in which its completions were measured to be as good as in float32, and `context_tokens` the length of
the prompt beyond which they were measured to become no better. `languages` are those that the model knows, if it is not
a model of many, by their identifiers in LSP.
"""

import json
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # parsed JSON

from inference.config import MIN_PROMPT_TOKENS
from inference.errors import ModelError, quote, refuse

_NEEDED = (
    "a folder with config.json, tokenizer.json and model.safetensors, a GGUF file, OWNER/NAME or OWNER/NAME:FILE.gguf "
    "of a model on a hub, or ollama:NAME"
)
_MAX_BYTES = 2**28  # of a file beside the weights; the largest tokenizer.json in use has 40 MB
_MOST = {  # in config.json
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_attention_heads", "head_dim"), 10_000),
    **dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size"), 2**24),
    "max_position_embeddings": 2**40,
}
_MAX_NAME_BYTES = 255  # of a file
_POINTER = b"version https://git-lfs"
GGUF_NAME = "model.gguf"  # a link to a GGUF file, or to that of its first part
_WEIGHTS = ("model.safetensors", "pytorch_model.bin", GGUF_NAME)  # the first two may be split, with an index beside
_OTHER_WEIGHTS = ("*.gguf", "*.pth", "*.pt", "*.onnx", "*.npz", "*.h5", "*.msgpack")
_CONVERT = "save one with AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers"
_NO_PATTERN = "does not say how text is split into pre-tokens; use a tokenizer.json from the model's publisher"
_OTHER_TOKENIZERS = {
    "tekken.json": "Mistral's format is not supported; use a tokenizer.json from the model's publisher",
    "tokenizer.model": f"SentencePiece's format is not supported; {_CONVERT}, with the package sentencepiece installed",
    "spiece.model": f"SentencePiece's format is not supported; {_CONVERT}, with the package sentencepiece installed",
    "tiktoken.model": f"tiktoken's format {_NO_PATTERN}",
    "*.tiktoken": f"tiktoken's format {_NO_PATTERN}",
    "merges.txt": f"vocab.json and merges.txt do not say how text is split into pre-tokens; {_CONVERT}",
    "vocab.json": f"a vocabulary alone {_NO_PATTERN}",
    "vocab.txt": f"a vocabulary alone {_NO_PATTERN}",
}


def read_text(path: Path) -> str:
    """The text of a file beside the weights. Raises ModelError."""
    try:
        _check_file(path)
        if path.stat().st_size > _MAX_BYTES:
            raise OSError(f"it has more than {_MAX_BYTES / 1e6:,.0f} MB")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no such file. Raises ModelError."""
    if not path.exists() and not path.is_symlink():  # a link that leads nowhere is not "no file"
        return {}
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"cannot read {path}: {error}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not an object of JSON")
    return content


def check_model_folder(folder: Path) -> None:
    """Raises ModelError if the folder is no complete model."""
    check_description(folder)
    find_tokenizer_file(folder)
    for path in [*sorted(folder.glob("*.json")), *find_weight_files(folder)]:
        _check_file(path)


def check_description(folder: Path) -> None:
    """Raises ModelError if the folder is of no model that can be run, whatever its weights are."""
    other = name_other_format([path.name for path in folder.glob("*.json")])
    refuse(
        ModelError,
        {
            f"{folder} {'is a file' if folder.exists() else 'does not exist'}; a model is {_NEEDED}": (
                not folder.is_dir()
            ),
            f"{folder} has an adapter (adapter_config.json), and a model would be run without it; merge it with "
            "merge_and_unload() of peft, and save the result": (folder / "adapter_config.json").exists(),
            f"{folder} is not a model folder: it has no config.json{other or _name_other_weights(folder)}": (
                not (folder / "config.json").is_file()
            ),
        },
    )
    _check_config(folder / "config.json")


def _check_config(path: Path) -> None:
    """Raises ModelError if others have quantized the weights, if their code is not run, or if no model has its size."""
    config = read_object(path)
    family, code = (str(config.get(name)) for name in ("model_type", "auto_map"))
    own = re.search(r"'AutoModelForCausalLM': '([^']+)'", code)
    quantization = config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    parts = [part for part in (config, config.get("text_config")) if isinstance(part, dict)]
    sizes = {name: size for part in parts for name in _MOST if type(size := part.get(name)) is int}
    odd = next((name for name, size in sizes.items() if not 0 < size <= _MOST[name]), None)
    reasons = {
        f"{path.parent} has weights that are quantized by {quote(str(method or 'a method without a name'))} "
        "(quantization_config in its config.json); use the model with weights that are not quantized": (
            quantization is not None
        ),
        f"{path.parent} brings code of its own ({own and own[1]}, auto_map in its config.json), which is never run, "
        f"and is not that of the family {quote(family)}": own and _squeeze(own[1]) != _squeeze(family),
        f"{path}: {odd} is {odd and sizes[odd]}, which no model has": odd,
    }
    refuse(ModelError, reasons)


def _squeeze(name: str) -> str:
    """The same for the class of a model, with its module, and for its family."""
    return re.sub(r"ForCausalLM|LMHeadModel|_text$|\W|_", "", name.rpartition(".")[2]).lower()


def find_gguf_file(folder: Path) -> Path:
    """The GGUF file of a folder; if that is a link, what it leads to: the user's file, beside which its parts are."""
    path = folder / GGUF_NAME
    return folder / path.readlink() if path.is_symlink() else path


def find_tokenizer_file(folder: Path) -> Path:
    """The folder's `tokenizer.json`. Raises ModelError."""
    path = folder / "tokenizer.json"
    if not path.exists():
        for pattern, what in _OTHER_TOKENIZERS.items():
            if found := sorted(folder.glob(pattern)):
                raise ModelError(f"{folder} has no tokenizer.json, but {found[0].name}: {what}")
        raise ModelError(f"cannot read {path}: the model folder has no tokenizer.json")
    return path


def find_weight_files(folder: Path) -> tuple[Path, ...]:
    """The files with the weights. Raises ModelError if there are none, or some are missing."""
    for name in _WEIGHTS:
        if (folder / name).exists():
            return (folder / name,)
        if (folder / f"{name}.index.json").exists():
            return tuple(_iter_parts(folder / f"{name}.index.json"))
    raise ModelError(f"{folder} has no weights ({_WEIGHTS[0]}){_name_other_weights(folder)}")


def _iter_parts(index: Path) -> Iterator[Path]:
    names = read_object(index).get("weight_map")
    if not isinstance(names, dict):
        raise ModelError(f"{index} cannot be read: it has no weight_map")
    for name in sorted(set(map(str, names.values()))):
        if Path(name).name != name or len(name.encode(errors="replace")) > _MAX_NAME_BYTES:
            raise ModelError(f"{index} names a file outside of the folder: {quote(name)}")
        if not (index.parent / name).exists():
            raise ModelError(f"{name}, which {index} names, is missing; download the model again")
        yield index.parent / name


def name_other_format(names: Collection[str]) -> str:
    """What the files of a model without config.json or tokenizer.json are, to be added to a sentence that says so."""
    if "adapter_config.json" in names:
        return (
            ", but an adapter (adapter_config.json), which has to be merged with its model: merge_and_unload() of peft"
        )
    if {"params.json", "tekken.json"} & set(names):
        return ", but the files of Mistral's own format, which is not supported; use a model that has both"
    return ""


def _name_other_weights(folder: Path) -> str:
    others = sorted(path.name for pattern in _OTHER_WEIGHTS for path in folder.glob(pattern))
    if others and others[0].endswith(".gguf"):
        return f", but {others[0]}: name that file instead of its folder"
    return f", but {others[0]}, which is in a format that is not supported" if others else ""


def _check_file(path: Path) -> None:
    """Raises ModelError for what cannot be read, and what is no file, as a pipe or device, which may have no end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelError(f"{path} is no file")
        with path.open("rb") as file:
            if file.read(len(_POINTER)) == _POINTER:
                raise ModelError(f"{path} is a Git LFS pointer in place of the file; run 'git lfs pull' in the folder")
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error}") from None


OWN_FILE_NAME = "midtoken.json"
_OWN_KEYS = ("fill_in", "dtype", "context_tokens", "languages")
_DTYPES = ("float32", "int8", "int4")


@dataclass(frozen=True, slots=True)
class FolderFile:
    """The content of the file; the defaults if there is none."""

    fill_in: dict[str, Any] = field(default_factory=dict)
    dtype: str | None = None
    context_tokens: int | None = None
    languages: tuple[str, ...] = ()  # empty: any


def read_folder_file(folder: Path) -> FolderFile:
    """The file in a model folder. Raises ModelError if it is wrong."""
    path = folder / OWN_FILE_NAME
    values = check_keys(path, "the file", read_object(path), _OWN_KEYS)
    dtype, context_tokens = values.get("dtype"), values.get("context_tokens")
    fill_in, languages = values.get("fill_in", {}), values.get("languages", [])
    refuse(
        ModelError,
        {
            f"{path}: dtype must be one of {', '.join(_DTYPES)}, not {quote(repr(dtype))}": (
                dtype is not None and dtype not in _DTYPES
            ),
            f"{path}: fill_in must be a JSON object": not isinstance(fill_in, dict),
            f"{path}: context_tokens must be a whole number, at least {MIN_PROMPT_TOKENS}": (
                context_tokens is not None and (type(context_tokens) is not int or context_tokens < MIN_PROMPT_TOKENS)
            ),
            f"{path}: languages must be a list of names": (
                not isinstance(languages, list) or not all(isinstance(each, str) and each for each in languages)
            ),
        },
    )
    return FolderFile(fill_in, dtype, context_tokens, tuple(languages))


def check_keys(path: Path, name: str, value: Any, known: tuple[str, ...]) -> dict[str, Any]:  # Any: parsed JSON
    """The value, if it is an object with known keys only. Raises ModelError."""
    if not isinstance(value, dict):
        raise ModelError(f"{path}: {name} must be a JSON object")
    refuse(
        ModelError,
        {
            f"{path}: unknown key {quote(key)} in {name}; known are {', '.join(known)}": key not in known
            for key in value
        },
    )
    return value
