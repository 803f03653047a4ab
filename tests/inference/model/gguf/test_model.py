"""GGUF files of the bundled model: run rightly, or refused with what is wrong."""

import gc
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from types import MappingProxyType
from typing import Any

import llama_cpp
import numpy as np
import pytest

from benchmarks.baselines.gguf_file import Precision, write_gguf, write_random_gguf
from inference.config import EngineConfig
from inference.engine.engine import Engine, complete
from inference.engine.local_executor import load_engine
from inference.errors import InvalidRequestError, ModelError, OverloadedError
from inference.healing.heal_point import encode_text
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.healing.token_tree import TokenTree
from inference.model import loader
from inference.model.gguf.kv_cache import GgufSequenceCache
from inference.model.language_model import LanguageModel, SequencePart
from inference.model.loader import load_model
from inference.protocol.completion import CompletionRequest, Extent
from tests.support.runners import CheckedSequence
from tests.support.sinks import submit
from tests.support.state_models import SeparateTexts

_BUNDLED = Path("models/default").absolute()
_TEXT = Path("models/default/README.md").read_text(encoding="utf-8")


def _write_folder(folder: Path, num_parts: int = 1, precision: str = "f32") -> Path:
    """The bundled model as a GGUF file, or several."""
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "midtoken.json"):  # the same prompts
        copyfile(_BUNDLED / name, folder / name)
    write_gguf(_BUNDLED, folder / "weights.gguf", Precision(precision), num_parts)
    first = folder / ("weights.gguf" if num_parts == 1 else f"weights-00001-of-{num_parts:05}.gguf")
    (folder / "model.gguf").symlink_to(first)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write_folder(tmp_path_factory.mktemp("models") / "default")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with closing(load_engine(EngineConfig(folder))) as engine:
        yield engine


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return load_model(EngineConfig(folder, cache_tokens=4096)).model


def _read(model: LanguageModel, token_ids: tuple[int, ...], *branch_ids: int) -> tuple[GgufSequenceCache, Any]:
    cache: Any = model.new_cache(len(token_ids))
    tree = TokenTree(token_ids, branch_ids, (None,) * len(branch_ids))
    [rows] = model.forward([SequencePart(cache, tree)])
    cache.keep(tree)
    return cache, np.stack([row.to_host() for row in rows])


@pytest.fixture(scope="module")
def reference() -> LanguageModel:
    return load_model(EngineConfig(_BUNDLED, dtype="float32")).model


def test_a_text_and_a_tree_that_take_several_passes_get_the_logits_of_onnxruntime(
    model: LanguageModel, reference: LanguageModel
) -> None:
    text = tuple(np.random.default_rng(0).integers(8, 8000, 1100).tolist())
    _, ours = _read(model, text, *range(40, 140))
    cache: Any = reference.new_cache(1)
    [rows] = reference.forward([SequencePart(cache, TokenTree(text, tuple(range(40, 140)), (None,) * 100))])
    np.testing.assert_allclose(ours, np.stack([row.to_host() for row in rows]), atol=0.05)


def test_the_last_position_of_the_model_is_right_and_the_next_one_is_refused(model: LanguageModel) -> None:
    text = (5,) * model.max_tokens
    _read(model, text)
    with pytest.raises(InvalidRequestError, match="2049 tokens is longer than the 2048 tokens of the model"):
        _read(model, (*text, 5))


def test_more_sequences_than_llama_cpp_has_are_refused_by_name_and_all_are_free_again(folder: Path) -> None:
    model: Any = load_model(EngineConfig(folder, cache_tokens=8192)).model
    cache, _ = _read(model, (1, 2, 3), *range(20))
    tree = TokenTree((4,), tuple(range(200)), (None,) * 200)
    model.forward([SequencePart(cache, tree)])
    stored = cache.copy_branches(tree)  # the rest has no room
    cache.keep(tree)
    assert (None in stored, sum(row is not None for row in stored) > 20) == (True, True)
    caches: list[Any] = []
    with pytest.raises(OverloadedError, match="no room for 1 further sequences"):
        caches.extend(cache.fork() for _ in range(300))
    with pytest.raises(OverloadedError, match="no room for 199 further sequences"):
        model.forward([SequencePart(cache, tree)])

    del stored, caches, cache
    gc.collect()
    model.new_cache(10 * 512 - 8)  # all cells are free: two contexts in use beside eight remembered
    for _ in range(2):
        assert _read(model, (1, 2, 3), *range(200))[1].shape == (201, 8192)


def test_completions_are_those_of_onnxruntime_key_after_key_and_sixteen_at_once(engine: Engine) -> None:
    """The benchmark compares more, with what is a tie."""
    requests = [CompletionRequest(_TEXT[: 1500 + at], max_tokens=8, extent=Extent.SINGLE_LINE) for at in range(64)]
    warm = [complete(engine, request) for request in requests]
    with closing(load_engine(EngineConfig(_BUNDLED, dtype="float32"))) as other:
        expected = [complete(other, request)[0] for request in requests]
    assert [text for text, _ in warm] == expected
    assert np.mean([stats.num_first_tokens for _, stats in warm[1:]]) <= 2
    for first in range(0, 64, 16):
        sinks = [submit(engine, request) for request in requests[first : first + 16]]
        for sink in sinks:
            sink.wait_for_end()
        assert [sink.text for sink in sinks] == expected[first : first + 16]


def test_requests_that_have_no_room_beside_others_wait_for_it(folder: Path) -> None:
    with closing(load_engine(EngineConfig(folder, max_context_tokens=64, memory_mib=1))) as engine:
        sinks = [submit(engine, CompletionRequest(_TEXT[at : at + 300], max_tokens=8)) for at in range(0, 1600, 100)]
        for sink in sinks:
            sink.wait_for_end()
    assert [sink.error for sink in sinks] == [None] * 16


def test_four_texts_have_room_beside_a_full_context_and_eight_are_refused_as_what_never_has(folder: Path) -> None:
    encoder = load_tokenizer(folder).encoder
    texts = (_TEXT[:end] for end in range(1000, len(_TEXT), 4))
    request = CompletionRequest(next(text for text in texts if len(encode_text(encoder, text)) >= 465))
    with closing(load_engine(EngineConfig(folder, max_context_tokens=512))) as engine:
        sink = submit(engine, replace(request, num_candidates=4, extent=Extent.SINGLE_LINE)).wait()
        assert 448 < sink.stats.num_context_tokens <= 480  # the rest is for healed bytes
        with pytest.raises(InvalidRequestError, match="the request needs 8 sequences and room for"):
            complete(engine, replace(request, num_candidates=8))


def test_a_file_in_parts_is_loaded_and_said_as_what_it_runs(tmp_path: Path) -> None:
    loaded = load_model(EngineConfig(_write_folder(tmp_path / "parts", 3), num_threads=2))
    assert loaded.runs_as == "all F32, 2 threads (llama.cpp, 7 million weights)"


_SIZES = {
    **{"context_length": 4096, "embedding_length": 32, "block_count": 1, "feed_forward_length": 32},
    **{"attention.head_count": 2, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5},
    **{"attention.key_length": 16, "attention.value_length": 16},
}
_NORMS = {f"{name}_norm.weight": (32,) for name in ("attn", "ffn")}
_FORWARD = {f"ffn_{name}.weight": (32, 32) for name in ("gate", "up", "down")}
_ATTENTION = {f"attn_{name}.weight": (32, size) for name, size in (("q", 32), ("k", 16), ("v", 16), ("output", 32))}
_LAYER: dict[str, tuple[int, ...]] = {**_NORMS, **_FORWARD, **_ATTENTION}
_T5 = {**_NORMS, **_FORWARD, **{f"attn_{name}.weight": (32, 16) for name in "qkv"}, "attn_o.weight": (16, 32)}
_GEMMA3 = {
    **{f"post_{name}_norm.weight": (32,) for name in ("attention", "ffw")},
    **{f"attn_{name}_norm.weight": (16,) for name in "qk"},
}
_EXPERTS: dict[str, tuple[int, ...]] = {f"ffn_{name}_exps.weight": (32, 32, 4) for name in ("gate", "up", "down")} | {
    "ffn_gate_inp.weight": (32, 4)
}
_SHARED: dict[str, tuple[int, ...]] = {f"ffn_{name}_shexp.weight": (32, 32) for name in ("gate", "up", "down")}
_LATENT: dict[str, tuple[int, ...]] = {
    **{"attn_q_a.weight": (32, 16), "attn_q_a_norm.weight": (16,), "attn_q_b.weight": (16, 48)},
    **{"attn_kv_a_mqa.weight": (32, 24), "attn_kv_a_norm.weight": (16,)},
    **{"attn_k_b.weight": (16, 16, 2), "attn_v_b.weight": (16, 16, 2), "attn_output.weight": (32, 32)},
}
_OF_EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
_OF_LATENT = {
    **{"attention.kv_lora_rank": 16, "attention.key_length": 24, "attention.key_length_mla": 24},
    **{"attention.value_length_mla": 16, "rope.dimension_count": 8, "leading_dense_block_count": 0},
    **{"attention.head_count_kv": 1, "expert_shared_count": 1, "block_count": 2, "attention.q_lora_rank": 16},
}
_HEAD_NORMS: dict[str, tuple[int, ...]] = {f"attn_{name}_norm.weight": (16,) for name in "qk"}
# This year's families, with layers of the kinds that their models have.
_FAMILIES: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "gemma3": ({"attention.sliding_window": 4, "block_count": 6}, _LAYER | _GEMMA3),
    "qwen3moe": (_OF_EXPERTS | {"block_count": 2}, _NORMS | _ATTENTION | _HEAD_NORMS | _EXPERTS),
    "mellum": (
        _OF_EXPERTS | {"block_count": 4, "attention.sliding_window": 4, "attention.sliding_window_pattern": 4},
        _NORMS | _ATTENTION | _HEAD_NORMS | _EXPERTS,
    ),
    "deepseek2": (_OF_EXPERTS | _OF_LATENT, _NORMS | _LATENT | _EXPERTS | _SHARED),
    "granite": ({"block_count": 2, "logit_scale": 4.0, "residual_scale": 0.2, "attention.scale": 0.1}, _LAYER),
}
_REFUSED: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]], str]] = {
    "dream": ({}, _LAYER, "is an encoder, and does not predict the next token"),
    "t5encoder": ({"attention.relative_buckets_count": 8}, _T5, "has an encoder"),
}  # fmt: skip


def _write_family(
    folder: Path,
    family: str,
    values: dict[str, Any],
    layer: dict[str, tuple[int, ...]],
    others: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> Path:
    """A tiny model with random weights, of a family that llama.cpp knows, with the tokenizer of the bundled model."""
    encoder = "enc." * (family == "t5encoder")
    shapes = {"token_embd.weight": (32, 8192), f"{encoder}output_norm.weight": (32,)}
    layers = range(values.get("block_count", 1))
    shapes |= {f"{encoder}blk.{n}.{name}": shape for n in layers for name, shape in layer.items()} | dict(others)
    spec = json.loads((_BUNDLED / "tokenizer.json").read_text())
    write_random_gguf(folder / "tiny.gguf", family, spec, _SIZES | values, shapes)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "midtoken.json"):  # the same prompts
        copyfile(_BUNDLED / name, folder / name)
    (folder / "model.gguf").symlink_to(folder / "tiny.gguf")
    return folder


def test_scaled_positions_do_not_depend_on_the_room_for_other_sequences(tmp_path: Path) -> None:
    """llama.cpp chooses the factors of LongRoPE by the size of the context, which is that of all sequences here."""
    values = {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 1024}
    factors = {f"rope_factors_{name}.weight": (8,) for name in ("long", "short")}
    folder = _write_family(tmp_path, "llama", values, _LAYER, factors)
    few, many = (load_model(EngineConfig(folder, max_context_tokens=each)).model for each in (16, 1024))
    assert (few.max_tokens, many.max_tokens) == (1024, 1024)
    text = tuple(np.random.default_rng(0).integers(8, 8000, 100).tolist())
    np.testing.assert_allclose(_read(few, text)[1], _read(many, text)[1], atol=0.01)


@pytest.mark.parametrize("family", _REFUSED)
def test_models_that_cannot_be_run_rightly_are_refused_by_name(family: str, tmp_path: Path) -> None:
    values, layer, reason = _REFUSED[family]
    folder = _write_family(tmp_path, family, values, layer)
    with pytest.raises(ModelError, match=f"cannot load tiny.gguf: it {reason}"):
        load_model(EngineConfig(folder))


@pytest.mark.parametrize("family", _FAMILIES)
def test_the_families_of_this_year_get_the_logits_of_separate_texts_however_a_text_is_cut(
    family: str, tmp_path: Path
) -> None:
    values, layer = _FAMILIES[family]
    folder = _write_family(tmp_path, family, values, layer, {"output.weight": (32, 8192)})
    model = load_model(EngineConfig(folder, max_context_tokens=512)).model
    random = np.random.default_rng(0)
    cache: Any = model.new_cache(512)
    text: tuple[int, ...] = ()
    differences = list[float]()
    for _ in range(12):
        chain, branches = (tuple(random.integers(8, 8000, size).tolist()) for size in (random.integers(1, 40), 3))
        tree = TokenTree(chain, branches, (None, 0, None))
        [rows] = model.forward([SequencePart(cache, tree)])
        found = np.stack([row.to_host() for row in rows])
        cache.keep(tree)
        text += chain
        ends = ((), branches[:1], branches[:2], branches[2:])
        expected = np.concatenate([_read(model, text + end)[1] for end in ends])
        differences += list(np.std(found - expected, axis=1) / np.std(expected, axis=1))
        text = text[: random.integers(len(text))]
        cache.cut(len(text))
    assert max(differences) < 0.01


@pytest.mark.parametrize("window", [4, 1024])
def test_what_a_window_has_passed_is_there_when_the_text_is_cut_back(window: int, tmp_path: Path) -> None:
    folder = _write_family(tmp_path, "gemma3", {"attention.sliding_window": window}, _LAYER | _GEMMA3)
    model = load_model(EngineConfig(folder, max_context_tokens=2048, cache_tokens=4096)).model
    assert model.max_tokens == 4096
    text = tuple(np.random.default_rng(0).integers(8, 8000, 1500).tolist())
    other, _ = _read(model, text[:1000])
    sequence = CheckedSequence(model, SeparateTexts(folder / "tiny.gguf").forward, 0.01)
    sequence.skim(text)
    del other
    for length in (700, 900):
        _read(model, text[:length])  # in the free cells, and in those after them if nothing needs them
    for length in (1490, 700, 1):
        sequence.cut(length)
        sequence.read(text[length])


def test_other_logits_in_a_tree_than_in_a_text_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = llama_cpp.llama_decode

    def mix(context: Any, batch: Any) -> int:  # as layers that mix neighbouring rows
        batch.token[0] += batch.n_tokens
        return int(decode(context, batch))

    monkeypatch.setattr(llama_cpp, "llama_decode", mix)
    with pytest.raises(ModelError, match=r"llama\.cpp computes other logits for a token in a tree than in a text"):
        load_model(EngineConfig(folder))


def test_other_tokens_than_those_of_llama_cpp_are_refused(tmp_path: Path) -> None:
    _write_folder(tmp_path / "other")
    path = tmp_path / "other/tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["merges"].reverse()
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"midtoken would encode a text otherwise than llama\.cpp: after "):
        load_model(EngineConfig(tmp_path / "other"))


def test_a_damaged_file_is_named_with_what_llama_cpp_says(tmp_path: Path) -> None:
    _write_folder(tmp_path / "damaged")
    (tmp_path / "damaged/weights.gguf").write_bytes(b"GGUF" + b"\0" * 100)
    with pytest.raises(ModelError, match=r"cannot load weights\.gguf: llama\.cpp cannot read it: gguf_init"):
        load_model(EngineConfig(tmp_path / "damaged"))


def test_without_llama_cpp_the_remedy_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "find_spec", lambda _name: None)
    with pytest.raises(ModelError, match=r"run .*\[gguf\]'?, which needs a C\+\+ compiler"):
        load_model(EngineConfig(folder))
