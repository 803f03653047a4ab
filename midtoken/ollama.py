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

_LIBRARY = "registry.ollama.ai/library/"  # what is left out in a name
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_SERVICE_STORE = Path("/usr/share/ollama/.ollama/models")  # where Ollama is a service of Linux
_MODEL, _ADAPTER = (f"application/vnd.ollama.image.{kind}" for kind in ("model", "adapter"))


def find_ollama_file(name: str, environment: Mapping[str, str]) -> Path:
    """Returns the file of a model. Raises ModelError."""
    name = name if ":" in name else f"{name}:latest"
    manifests = find_manifests(environment)
    if name not in manifests:
        there = ", ".join(manifests) or f"no model in {' or '.join(map(str, _find_stores(environment)))}"
        raise ModelError(f"Ollama has not pulled {quote(name)}; there is {there}")
    try:
        layers = json.loads(manifests[name].read_text(encoding="utf-8"))["layers"]
        digests = [layer["digest"] for layer in layers if layer["mediaType"] == _MODEL]
        has_adapter = any(layer["mediaType"] == _ADAPTER for layer in layers)
    except (LookupError, OSError, TypeError, ValueError):
        raise ModelError(f"{manifests[name]}, of Ollama, cannot be read") from None
    if has_adapter:
        raise ModelError(f"{OLLAMA}{name} has an adapter, and would be run without it; name a model without one")
    if len(digests) != 1 or not _DIGEST.fullmatch(str(digests[0])):
        named = ", ".join(map(str, digests)) or "none"
        raise ModelError(f"{OLLAMA}{name} needs one file with weights, and its manifest names {named}")
    blob = manifests[name].parents[4] / "blobs" / digests[0].replace(":", "-")
    if not blob.is_file():
        raise ModelError(f"{OLLAMA}{name} is not complete, {blob} is missing: pull it again with Ollama")
    return Path(blob)


def find_manifests(environment: Mapping[str, str]) -> dict[str, Path]:
    """Returns the manifests in Ollama's stores by the names of the models."""
    found = dict[str, Path]()
    for store in _find_stores(environment):
        for path in sorted(store.glob("manifests/*/*/*/*")):
            name = path.parent.relative_to(store / "manifests").as_posix()
            found.setdefault(f"{name.removeprefix(_LIBRARY).removeprefix('registry.ollama.ai/')}:{path.name}", path)
    return found


def _find_stores(environment: Mapping[str, str]) -> list[Path]:
    named = environment.get("OLLAMA_MODELS")
    return [Path(named)] if named else [Path("~/.ollama/models").expanduser(), _SERVICE_STORE]
