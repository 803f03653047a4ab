"""What names a model: which names are of a hub, and what is found on this machine."""

from pathlib import Path

import pytest

from benchmarks.baselines.gguf_file import write_tokenizer_gguf
from benchmarks.corpora.tokenizer_kinds import TOKENIZER_KINDS
from inference.errors import ModelError
from midtoken.models import HubModel, ensure_model_folder

_NAME = "owner/Model-0.5B"


_SPEC = next(kind for kind in TOKENIZER_KINDS if kind.name == "qwen2").build()


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
