"""What names a model: which names are of a hub, what is found on this machine, and what Ollama has pulled."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.baselines.gguf_file import write_tokenizer_gguf
from inference.errors import ModelError
from midtoken.models import HubModel, ensure_model_folder, find_ollama_file, list_manifests
from tests.support.tokenizer_folders import spec_of

_NAME = "owner/Model-0.5B"


_SPEC = spec_of("qwen")


_NAMES: dict[str, tuple[str, str, str] | None] = {
    _NAME: (_NAME, "", "main"),
    "Qwen/Qwen2.5-Coder-0.5B@v1.0": ("Qwen/Qwen2.5-Coder-0.5B", "", "v1.0"),
    "owner/name@refs/pr/4": ("owner/name", "", "refs/pr/4"),
    "owner/name:Name-Q4_K_M.gguf": ("owner/name", "Name-Q4_K_M.gguf", "main"),
    "owner/name:q8/Name-00001-of-00002.gguf@v1": ("owner/name", "q8/Name-00001-of-00002.gguf", "v1"),
    **{f"owner/name:{file}": ("owner/name", file, "main") for file in ("Q8_0", "q4_k_m", "UD-IQ4_XS", "BF16")},
    **dict.fromkeys(("owner/name:latest", "owner/name:7b", "owner/name:../Q8_0")),
    **dict.fromkeys(("owner/name:", "owner/name:x.bin", "owner/name:../x.gguf", "owner/name:/x.gguf", "name:x.gguf")),
    **dict.fromkeys(("owner/name:a/../x.gguf", "ollama:name", "ollama:owner/name", "owner/name.gguf:7b")),
    **dict.fromkeys(("./owner/name", "/owner/name", "../owner", "~/name", "name", "a/b/c", "owner/..", "C:/name")),
    **dict.fromkeys(("owner/name@../../x", "owner/name@a/../x", "owner/name@", "owner/na..me", "é/name", "owner/a\n")),
    **dict.fromkeys(("owner/.name", "-owner/name", "file.gguf", "")),
}  # fmt: skip


_PAGES = {
    "https://huggingface.co/owner/name": "owner/name",
    "https://hf.co/owner/name/": "owner/name",
    "hf.co/owner/name:Q8_0": "owner/name:Q8_0",
    "https://huggingface.co/owner/name/tree/v1.0": "owner/name@v1.0",
    "https://huggingface.co/owner/name/tree/refs%2Fpr%2F4?x=1": "owner/name@refs/pr/4",
    "https://huggingface.co/owner/name/blob/main/q8/m-Q8_0.gguf#x": "owner/name:q8/m-Q8_0.gguf",
    "https://huggingface.co/owner/name/resolve/v1/m.gguf?download=true": "owner/name:m.gguf@v1",
    "https://huggingface.co/owner/name/tree/main/q8": "",  # a folder of files
    **dict.fromkeys(("https://huggingface.co/owner", "https://huggingface.co/datasets/owner/name"), ""),
    **dict.fromkeys(("https://hf.co/../name", "https://hf.co.example/owner/name", "https://example/hf.co/a/b"), ""),
}


@pytest.mark.parametrize("text", _PAGES)
def test_the_address_of_a_hubs_page_is_the_models_name(text: str) -> None:
    assert str(HubModel.parse(text) or "") == _PAGES[text]


@pytest.mark.parametrize("text", _NAMES)
def test_only_owner_and_name_are_a_model_of_a_hub(text: str) -> None:
    model = HubModel.parse(text)
    assert (model and (model.repository, model.file, model.revision)) == _NAMES[text]
    assert model is None or str(model) == text


def test_a_file_and_a_model_of_ollama_are_found_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "made"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.chdir(tmp_path)
    path = write_tokenizer_gguf(tmp_path / "a.gguf", _SPEC, "qwen2", **{"tokenizer.ggml.eos_token_id": 1})
    assert (ensure_model_folder("a.gguf") / "model.gguf").readlink() == path
    with pytest.raises(ModelError, match="Ollama has not pulled 'a:latest'"):
        ensure_model_folder("ollama:a")
    path.write_text("text")
    with pytest.raises(ModelError, match=r"a\.gguf is not a GGUF file"):
        ensure_model_folder("./a.gguf")
    assert ensure_model_folder("no.gguf") == tmp_path / "no.gguf"  # which is refused as a folder


@pytest.mark.parametrize("text", ["a\0b", "a" * 5000, "~no-such-user/model"])
def test_what_cannot_be_a_path_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ModelError, match=r"^the model '.*'.* cannot be read: "):
        ensure_model_folder(text)


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
