"""The tokenizer of a GGUF file makes the same ids as the published tokenizer.json."""

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.baselines.gguf_file import find_end, write_tokenizer_gguf
from inference.errors import ModelError
from inference.healing.heal_point import encode_text
from inference.healing.loaded_tokenizer import LoadedTokenizer, iter_sample, load_tokenizer
from inference.healing.tokenizer_file import read_tokenizer_file
from midtoken.gguf import make_folder, read_metadata, write_folder_files
from tests.support.tokenizer_folders import add, read_spec, spec_of

_PRE_TOKENIZERS = {  # a kind -> the name that llama.cpp's converter writes for it
    "gpt2": "gpt-2",
    "phi": "phi-2",
    "gpt-neox": "olmo",
    "starcoder": "starcoder",
    "nfc": "qwen2",
    "qwen 3.5": "qwen35",
    "llama3": "llama-bpe",
    "tekken": "tekken",
    "o200k": "gpt-4o",
    "deepseek-coder": "deepseek-coder",
    "deepseek-llm": "deepseek-llm",
    "deepseek-v3": "deepseek-v3",
    **dict.fromkeys(("llama2", "gemma", "gemma 1")),
}
_UNLIKE = {"deepseek-llm", "gemma"}  # kinds that are not as published: more letters in words, runs that none merges
_OTHER_MARKS = ("tekken", "o200k")  # llama.cpp splits at marks there, and what was published does not
_RUNS = [*(f"a{' ' * count}return" for count in range(1, 40)), *("\n" * count + "\t" * count for count in range(1, 20))]


def _write(folder: Path, files: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def _load(folder: Path, spec: Any) -> LoadedTokenizer:
    """The published tokenizer, with any end token."""
    return load_tokenizer(_write(folder, {"tokenizer.json": spec, "config.json": {"eos_token_id": find_end(spec)}}))


def _check_same(written: LoadedTokenizer, folder: Path, published: LoadedTokenizer) -> None:
    for text in [*iter_sample(read_tokenizer_file(folder), written.encoder), *_RUNS]:
        assert encode_text(written.encoder, text) == encode_text(published.encoder, text)
    assert written.vocabulary.token_bytes == published.vocabulary.token_bytes
    assert written.vocabulary.end_ids >= published.vocabulary.end_ids


@pytest.mark.parametrize("name", sorted(_PRE_TOKENIZERS.keys() - _UNLIKE))
def test_a_gguf_file_makes_the_ids_of_the_published_tokenizer(name: str, tmp_path: Path) -> None:
    spec = read_spec(name)
    end = {"tokenizer.ggml.eos_token_id": find_end(spec)}
    path = write_tokenizer_gguf(tmp_path / "m.gguf", spec, _PRE_TOKENIZERS[name], **end)

    folder = _write(tmp_path / "made", write_folder_files(read_metadata(path)))

    _check_same(load_tokenizer(folder), folder, _load(tmp_path / "published", spec))


@pytest.mark.parametrize("name", _PRE_TOKENIZERS)
def test_llama_cpp_makes_the_same_ids(name: str, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="the extra gguf")
    path = write_tokenizer_gguf(
        tmp_path / "m.gguf", read_spec(name), _PRE_TOKENIZERS[name], **{"tokenizer.ggml.eos_token_id": 0}
    )
    folder = _write(tmp_path / "made", write_folder_files(read_metadata(path)))
    loaded = load_tokenizer(folder)
    texts = [*(text for text, _ in loaded.sample), *_RUNS]
    if name not in _OTHER_MARKS:
        texts += [loaded.encoder.normalize(text) for text in iter_sample(read_tokenizer_file(folder), loaded.encoder)]

    assert [list(encode_text(loaded.encoder, text)) for text in texts] == _tokenize(path, texts)


def _tokenize(path: Path, texts: list[str]) -> list[list[int]]:
    from llama_cpp import llama_cpp

    llama_cpp.llama_log_set(_IGNORED, None)
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(bytes(path), parameters)
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    found = []
    for text in texts:
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(vocabulary, data, len(data), ids, len(ids), False, False)
        found.append(list(ids[:count]))
    llama_cpp.llama_model_free(model)
    return found


_IGNORED = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


_REFUSALS: dict[str, dict[str, Any]] = {
    "its pre-tokenizer (tokenizer.ggml.pre) is 'missing', and only codeshell, ": {"pre": None},
    "its pre-tokenizer (tokenizer.ggml.pre) is 'kimi-k2', and only": {"pre": "kimi-k2"},
    "its tokenizer is of the kind 't5', and only gpt2 and llama": {"tokenizer.ggml.model": "t5"},
    "of the kind 'bert'": {"tokenizer.ggml.model": "bert"},
    "of the kind 'none'": {"tokenizer.ggml.model": "none"},
    "it is not a model by itself, but of the type 'mmproj'": {"general.type": "mmproj"},
    "its metadata has no tokenizer.ggml.merges, so it": {"tokenizer.ggml.merges": None},
    "its metadata has no tokenizer.ggml.tokens, so it": {"tokenizer.ggml.tokens": None},
    "its tokenizer metadata cannot be read (IndexError": {"tokenizer.ggml.bos_token_id": 10**6},
    "it has 1000000000 layers (llama.block_count), and 512": {"llama.block_count": 10**9},
    "two tokens with the same text": {"tokenizer.ggml.tokens": ["a", "a"], "tokenizer.ggml.token_type": [1, 1]},
    "its metadata has no llama.context_length, so it": {"llama.context_length": None},
    "its metadata has no general.architecture, so it": {"general.architecture": None},
    "its tokenizer metadata cannot be read (ValueError": {"tokenizer.ggml.token_type": [1]},
    "its tokenizer metadata cannot be read (TypeError": {"tokenizer.ggml.merges": 7},
}


@pytest.mark.parametrize("words", _REFUSALS)
def test_what_cannot_be_right_is_refused_by_name(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tokenizer_gguf(tmp_path / "m.gguf", spec_of("qwen"), **{"pre": "qwen2"} | _REFUSALS[words])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ModelError) as raised:
        make_folder(path)
    assert words in str(raised.value)
    assert str(raised.value).startswith(f"{path}: ")


def test_tokens_that_are_no_text_end_or_mark_it(tmp_path: Path) -> None:
    spec = spec_of("gpt2")
    ids = {added["content"]: added["id"] for added in spec["added_tokens"]}
    prefix, suffix, middle = (ids[f"<|fim_{name}|>"] for name in ("prefix", "suffix", "middle"))
    metadata = read_metadata(write_tokenizer_gguf(tmp_path / "m.gguf", spec, "gpt-2"))
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    tokens += ["<|eot_id|>", "[PAD9]", "", "<pre>", "<suf>", "<mid>", "  "]
    types += [3, 5, 1, 1, 1, 1, 4]
    start = len(tokens) - 7
    named = {"eos": 1, "bos": 0, "fim_pre": start + 3, "suffix": start + 4, "fim_mid": start + 5, "padding": 70}

    files = write_folder_files(metadata | {f"tokenizer.ggml.{name}_token_id": each for name, each in named.items()})

    loaded = load_tokenizer(_write(tmp_path / "made", files))
    assert files["midtoken.json"] == {"fill_in": {"prefix": "<pre>", "suffix": "<suf>", "middle": "<mid>"}}
    assert files["config.json"] == {
        "model_type": "gguf",
        "architecture": "llama",
        "max_position_embeddings": 2048,
        "vocab_size": len(tokens),
        "eos_token_id": [0, 1, start],
    }
    assert files["tokenizer_config.json"] == {"bos_token": tokens[0], "add_bos_token": False}
    empty = [token_id for token_id, data in enumerate(loaded.vocabulary.token_bytes) if not data]
    assert {0, 1, prefix, suffix, middle, *range(start, start + 6)} <= set(empty)
    assert loaded.vocabulary.token_bytes[70]
    assert loaded.vocabulary.token_bytes[start + 6] == b"  "
    assert encode_text(loaded.encoder, "a  b")[1] == start + 6


def test_text_that_looks_like_a_control_token_is_merged_to_text(tmp_path: Path) -> None:
    spec = spec_of("llama2", added=add("</s>", special=True))
    path = write_tokenizer_gguf(tmp_path / "m.gguf", spec, None, **{"tokenizer.ggml.eos_token_id": 1})
    metadata = read_metadata(path)
    tokens = metadata["tokenizer.ggml.tokens"]
    more = [token for token in ("</", "s>") if token not in tokens]
    tokens += more
    metadata["tokenizer.ggml.token_type"] += [1] * len(more)
    metadata["tokenizer.ggml.scores"] += [9.0] * len(more)

    loaded = load_tokenizer(_write(tmp_path / "made", write_folder_files(metadata)))

    assert "</s>" in loaded.vocabulary.special_tokens
    assert encode_text(loaded.encoder, "</s>")[-2:] == (tokens.index("</"), tokens.index("s>"))
