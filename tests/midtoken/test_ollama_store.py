"""A model that Ollama has pulled is the blob of its weights, or is refused in one sentence."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from inference.errors import ModelError
from midtoken.models import find_ollama_file, list_manifests

_DIGEST = hashlib.sha256(b"GGUF").hexdigest()
_PLACES = {
    "coder": "registry.ollama.ai/library/coder/latest",
    "coder:latest": "registry.ollama.ai/library/coder/latest",
    "coder:1.5b-base": "registry.ollama.ai/library/coder/1.5b-base",
    "me/coder:7b": "registry.ollama.ai/me/coder/7b",
    "hf.co/me/Coder-GGUF:Q4_K_M": "hf.co/me/Coder-GGUF/Q4_K_M",
}


def _pull(store: Path, place: str, *kinds: str, digest: str = f"sha256:{_DIGEST}") -> None:
    """What Ollama leaves of a model whose layers are of these kinds."""
    manifest = store / "manifests" / place
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [{"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest} for kind in kinds]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    (store / "blobs").mkdir(exist_ok=True)
    (store / f"blobs/sha256-{_DIGEST}").write_bytes(b"GGUF")


@pytest.mark.parametrize("name", _PLACES)
@pytest.mark.parametrize("is_named", [True, False])
def test_a_name_is_the_blob_of_its_weights(
    name: str, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = tmp_path / ("store" if is_named else ".ollama/models")
    environment = {"OLLAMA_MODELS": str(store)} if is_named else {}
    _pull(store, _PLACES[name], "template", "model", "params", "projector")
    assert find_ollama_file(name, environment).read_bytes() == b"GGUF"
    assert list(list_manifests(environment)) == [name if ":" in name else f"{name}:latest"]


_FAULTS: dict[str, dict[str, Any]] = {
    "ollama:coder:latest has an adapter, and would be run without it": {"kinds": ("model", "adapter")},
    f"one file with weights, and its manifest names sha256:{_DIGEST}, sha256:": {"kinds": ("model", "model")},
    "ollama:coder:latest needs one file with weights, and its manifest names none": {"kinds": ("template",)},
    "one file with weights, and its manifest names sha256:../../x$": {"digest": "sha256:../../x"},
    f"is not complete, .*/blobs/sha256-{'0' * 64} is missing: pull it again": {"digest": f"sha256:{'0' * 64}"},
}


@pytest.mark.parametrize("words", _FAULTS)
def test_a_model_that_cannot_be_run_is_refused(words: str, tmp_path: Path) -> None:
    fault = dict(_FAULTS[words])
    _pull(tmp_path, _PLACES["coder"], *fault.pop("kinds", ("model",)), **fault)
    with pytest.raises(ModelError, match=words):
        find_ollama_file("coder", {"OLLAMA_MODELS": str(tmp_path)})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"layers": 7}', '{"layers": [{}]}'])
def test_a_manifest_that_is_none_is_refused(content: str, tmp_path: Path) -> None:
    _pull(tmp_path, _PLACES["coder"])
    (tmp_path / "manifests" / _PLACES["coder"]).write_text(content)
    with pytest.raises(ModelError, match=r"latest, of Ollama, cannot be read"):
        find_ollama_file("coder", {"OLLAMA_MODELS": str(tmp_path)})


def test_a_name_that_is_not_there_says_what_is(tmp_path: Path) -> None:
    environment = {"OLLAMA_MODELS": str(tmp_path)}
    with pytest.raises(ModelError, match=f"Ollama has not pulled 'coder:latest'; there is no model in {tmp_path}"):
        find_ollama_file("coder", environment)
    for place in _PLACES.values():
        _pull(tmp_path, place, "model")
    with pytest.raises(
        ModelError, match=r"not pulled '../x:7b'; there is hf.co/me/Coder-GGUF:Q4_K_M, coder:1.5b-base, coder:"
    ):
        find_ollama_file("../x:7b", environment)
