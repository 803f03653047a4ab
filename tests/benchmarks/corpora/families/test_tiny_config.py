"""Tiny configurations of model families."""

import pytest
import torch
import transformers

from benchmarks.corpora.families.tiny_config import CHUNK_TOKENS, MAX_TOKENS, VOCAB_SIZE, WINDOW_TOKENS, merge, shrink
from benchmarks.corpora.families.tiny_families import NOT_BUILT_HERE, build_changes, build_config, list_families
from benchmarks.corpora.families.tiny_variants import PLAIN, list_other_folders, list_tiny_models

_MAX_PARAMETERS = 4_000_000


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "mpt", "gemma3", "llama4", "deepseek_v3", "jamba", "falcon", "blt"]
)
def test_a_tiny_model_has_few_parameters(family: str) -> None:
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(build_config(family, build_changes(family)))

    assert sum(parameter.numel() for parameter in model.parameters()) < _MAX_PARAMETERS


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        ("gemma3_text", {"sliding_attention", "full_attention"}),
        ("qwen3_next", {"linear_attention", "full_attention"}),
        ("llama4_text", {"chunked_attention", "full_attention"}),
        ("lfm2", {"conv", "full_attention"}),
    ],
)
def test_every_kind_of_layer_is_kept(family: str, kinds: set[str]) -> None:
    config = build_config(family, build_changes(family))

    assert set(config.layer_types) == kinds
    assert config.num_hidden_layers == len(config.layer_types) <= 6


def test_windows_chunks_and_positions_become_short() -> None:
    mistral = build_config("mistral", build_changes("mistral"))
    llama4 = build_config("llama4_text", build_changes("llama4_text"))

    assert (mistral.sliding_window, mistral.max_position_embeddings) == (WINDOW_TOKENS, MAX_TOKENS)
    assert llama4.attention_chunk_size == CHUNK_TOKENS


def test_the_vocabulary_has_room_for_the_tokenizer_even_if_the_default_is_smaller() -> None:
    assert transformers.BltConfig().vocab_size < VOCAB_SIZE
    assert build_changes("blt")["vocab_size"] == VOCAB_SIZE


def test_heads_of_keys_are_fewer_than_those_of_queries_unless_the_family_has_as_many() -> None:
    shrunk = {family: build_config(family, build_changes(family)) for family in ("llama", "gemma", "axk1")}

    assert {family: config.num_key_value_heads for family, config in shrunk.items()} == {
        "llama": 2,
        "gemma": 4,
        "axk1": 4,
    }


def test_the_changes_are_those_of_the_fields_only() -> None:
    assert "model_type" not in shrink(transformers.LlamaConfig())


def test_merging_changes_nested_mappings_inside() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}}) == {"a": {"b": 4, "c": 2}, "d": 3}


def test_every_family_has_a_plain_model_and_no_variant_twice() -> None:
    for family in list_families():
        variants = [model.variant for model in list_tiny_models(family)]
        assert variants[0] == PLAIN
        assert len(set(variants)) == len(variants), family


def test_variants_of_an_ordinary_family_cover_rope_windows_and_heads() -> None:
    variants = {model.variant for model in list_tiny_models("qwen2")}

    assert {"dynamic RoPE", "yarn RoPE", "llama3 RoPE", "longrope RoPE", "window"} <= variants
    assert "without a window" in {model.variant for model in list_tiny_models("mistral")}
    assert "wide heads" in {model.variant for model in list_tiny_models("qwen3")}


def test_folders_without_a_model_are_few_and_named() -> None:
    assert all(not list_tiny_models(family)[0].is_built for family in NOT_BUILT_HERE)
    assert not any(model.is_built for model in list_other_folders())
