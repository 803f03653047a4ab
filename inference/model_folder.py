"""A model folder: its files, or in one sentence what it is or has in their place."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from inference.errors import ModelError, quote, refuse

_NEEDED = (
    "a folder with config.json, tokenizer.json and model.safetensors, a GGUF file, OWNER/NAME or OWNER/NAME:FILE.gguf "
    "of a model on a hub, or ollama:NAME"
)
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


def check_model_folder(folder: Path) -> None:
    """Raises ModelError if the folder is no complete model."""
    check_description(folder)
    find_tokenizer_file(folder)
    for path in [*sorted(folder.glob("*.json")), *find_weight_files(folder)]:
        if _is_pointer(path):
            raise ModelError(f"{path} is a Git LFS pointer in place of the file; run 'git lfs pull' in the folder")


def check_description(folder: Path) -> None:
    """Raises ModelError if the folder is of no model that can be run, whatever its weights are."""
    refuse(
        ModelError,
        {
            f"{folder} {'is a file' if folder.exists() else 'does not exist'}; --model is {_NEEDED}": (
                not folder.is_dir()
            ),
            f"{folder} has an adapter (adapter_config.json), and a model would be run without it; merge it with "
            "merge_and_unload() of peft, and save the result": (folder / "adapter_config.json").exists(),
            f"{folder} is not a model folder: it has no config.json{_name_other_weights(folder)}": (
                not (folder / "config.json").is_file()
            ),
        },
    )
    _check_numbers(folder)


def _check_numbers(folder: Path) -> None:
    """Raises ModelError if others have quantized the weights; another fault of the file is found when it is read."""
    with suppress(OSError, ValueError, AttributeError):
        quantization = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("quantization_config")
        if quantization is not None:
            method = quantization.get("quant_method") or "a method without a name"
            raise ModelError(
                f"{folder} has weights that are quantized by {quote(str(method))} (quantization_config in its "
                "config.json); use the model with weights that are not quantized"
            )


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
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise ModelError(f"{index} cannot be read") from None
    for name in sorted(names, key=str):
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{index} names a file outside of the folder: {quote(str(name))}")
        if not (index.parent / name).exists():
            raise ModelError(f"{name}, which {index} names, is missing; download the model again")
        yield index.parent / name


def _name_other_weights(folder: Path) -> str:
    others = sorted(path.name for pattern in _OTHER_WEIGHTS for path in folder.glob(pattern))
    if others and others[0].endswith(".gguf"):
        return f", but {others[0]}: name that file instead of its folder"
    return f", but {others[0]}, which is in a format that is not supported" if others else ""


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER
