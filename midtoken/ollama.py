"""The GGUF file of a model that Ollama has pulled: `ollama:NAME[:TAG]`. Its store is only read.

manifests/HOST/OWNER/NAME/TAG   the layers of a model, as JSON; of Ollama's library without HOST and OWNER
blobs/sha256-DIGEST             the content of a layer
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from inference.errors import ModelError, quote

OLLAMA = "ollama:"

_NAME = re.compile(r"(?!.*\.\.)(?:\w[\w.-]*/){0,2}\w[\w.-]*:\w[\w.-]*", re.ASCII)
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_LIBRARY = ("registry.ollama.ai", "library")  # what is left out in a name
_SERVICE_STORE = Path("/usr/share/ollama/.ollama/models")  # where Ollama is a service of Linux
_LAYER = "application/vnd.ollama.image."


def find_ollama_file(name: str, environment: Mapping[str, str]) -> Path:
    """Returns the file of a model. Raises ModelError."""
    name = name if ":" in name else f"{name}:latest"
    if not _NAME.fullmatch(name):
        raise ModelError(f"{quote(OLLAMA + name)} should be {OLLAMA}NAME or {OLLAMA}NAME:TAG")
    parts = re.split("[/:]", name)
    place = Path("manifests", *_LIBRARY[: 4 - len(parts)], *parts)
    stores = _find_stores(environment)
    for store in stores:
        if (store / place).is_file():
            return _find_blob(store, store / place, name)
    there = ", ".join(list_names(environment)) or f"no model in {' or '.join(map(str, stores))}"
    raise ModelError(f"Ollama has not pulled {name}; there is {there}")


def list_names(environment: Mapping[str, str]) -> list[str]:
    """Returns the names of the models in Ollama's stores."""
    names = []
    for store in _find_stores(environment):
        for path in sorted(store.glob("manifests/*/*/*/*")):
            host, owner, name, tag = path.parts[-4:]
            shown = [part for part, default in zip((host, owner), _LIBRARY, strict=True) if part != default]
            names.append(f"{'/'.join([*shown, name])}:{tag}")
    return names


def _find_stores(environment: Mapping[str, str]) -> list[Path]:
    named = environment.get("OLLAMA_MODELS")
    return [Path(named)] if named else [Path("~/.ollama/models").expanduser(), _SERVICE_STORE]


def _find_blob(store: Path, manifest: Path, name: str) -> Path:
    try:
        layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
        kinds = {layer["mediaType"].removeprefix(_LAYER) for layer in layers}
        digests = [layer["digest"] for layer in layers if layer["mediaType"] == f"{_LAYER}model"]
        is_right = all(map(_DIGEST.fullmatch, digests))
    except (AttributeError, LookupError, OSError, TypeError, ValueError):
        is_right = False
    if not is_right:
        raise ModelError(f"{manifest}, of Ollama, cannot be read")
    if "adapter" in kinds:
        raise ModelError(f"{OLLAMA}{name} has an adapter, and would be run without it; use its model, {OLLAMA}NAME")
    if len(digests) != 1:
        raise ModelError(f"{OLLAMA}{name} has {len(digests)} files with weights, and one is needed")
    blob = store / "blobs" / str(digests[0]).replace(":", "-")
    if not blob.is_file():
        raise ModelError(f"{OLLAMA}{name} is not complete, {blob} is missing: pull it again with Ollama")
    return blob
