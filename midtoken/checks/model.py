"""The model's folder."""

import json
from pathlib import Path

from midtoken.checks.check import Check, good, wrong

_MODEL_FILES = ("config.json", "tokenizer.json")
_INDEX = "model.safetensors.index.json"


def check_model_folder(folder: Path) -> Check:
    """Checks that the files of a model are there. Whether it can be served, its first completion says."""
    missing = [name for name in _MODEL_FILES if not (folder / name).is_file()]
    try:
        missing += [name for name in _list_weights(folder) if not (folder / name).is_file()]
    except (OSError, ValueError, AttributeError, KeyError, TypeError):  # not JSON, or not that of an index
        missing.append(f"a readable {_INDEX}")
    if missing:
        advice = "Install midtoken again, or name a complete model folder in Hugging Face layout with --model."
        return wrong(f"model {folder}: {', '.join(missing)} missing", advice)
    num_bytes = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    return good(f"model {folder}, {num_bytes / 1e6:,.0f} MB")


def _list_weights(folder: Path) -> list[str]:
    if (folder / _INDEX).is_file():
        return sorted(set(json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    return [] if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")) else ["*.safetensors"]
