from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequenceInput
from inference.model.pytorch.kv_cache import LayerShape, build_lone_segment
from inference.model.pytorch.loader import load_torch_runner
from inference.model.pytorch.runner import Runner
from tests.inference.conftest import MakeModel
from tests.support.decoder_folders import DecoderOracle
from tests.support.runners import CheckedSequence, load_torch
from tests.support.tiny_families import EXPERTS, KV, LATENT, LAYER_TYPES, build_config, build_model
from tests.support.toys import toy_tokenizer, write_model

_FAMILIES: dict[str, dict[str, object]] = {
    "llama": {},
    "qwen2": {},
    "mistral": {"sliding_window": 5},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16},
    "starcoder2": {"num_key_value_heads": 2, "sliding_window": 5},
    "gpt2": {},
    "gpt_neox": {},
    "gpt_bigcode": {},
    "gemma": {"num_key_value_heads": 1, "head_dim": 8},
    "phi": {},
    "granite": {"num_key_value_heads": 2},
    "cohere": {"num_key_value_heads": 2},
    "olmo2": {"num_key_value_heads": 2},
    "stablelm": {"num_key_value_heads": 2},  # does not pass the arguments of the model's call on
    "nemotron": {"num_key_value_heads": 2, "head_dim": 8},
    "gemma2": {**KV, "sliding_window": 5, "attn_logit_softcapping": 2.0},
    "gemma3_text": {**KV, **LAYER_TYPES, "sliding_window": 5},
    "gemma4_text": {**KV, **LAYER_TYPES, "sliding_window": 5, "global_head_dim": 16, "hidden_size_per_layer_input": 8},
    "diffllama": KV,
}
_EXPERT_FAMILIES: dict[str, dict[str, object]] = {  # in float32: experts have no code for float64
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "gpt_oss": {**KV, **EXPERTS, "sliding_window": 5},
    "afmoe": {**KV, **EXPERTS, "sliding_window": 5},
    "llama4_text": {**KV, **EXPERTS, "attention_chunk_size": 5, "pad_token_id": 0, "attn_temperature_tuning": False},
}


def _random_tree(random: Random) -> TokenTree:
    chain = tuple(random.choices(range(600), k=random.choice([1, 1, 2, 9])))
    branches = random.choices(range(600), k=random.choice([0, 0, 1, 4, 7]))
    parents = [random.choice([None, *range(index)]) for index in range(len(branches))]
    return TokenTree(chain, tuple(branches), tuple(parents))


def _new_sequence(folder: Path, dtype: str = "float64") -> CheckedSequence:
    """A sequence of the model in a folder. In float64, only mistakes differ from transformers."""
    return CheckedSequence(load_torch(folder, dtype), DecoderOracle(folder, dtype).forward, 1e-3)


@pytest.mark.parametrize("family", [*_FAMILIES, *_EXPERT_FAMILIES])
def test_each_node_gets_the_logits_of_its_own_path(family: str, make_model: MakeModel) -> None:
    """Several sequences in one pass, over several steps. Each step keeps some path. transformers is the oracle."""
    folder = make_model(family=family, **(_FAMILIES | _EXPERT_FAMILIES)[family])
    first = _new_sequence(folder, "float64" if family in _FAMILIES else "float32")
    random, sequences = Random(11), [first, first.fork(), first.fork()]
    for _ in range(5):
        here = random.sample(sequences, k=random.randint(1, 3))
        parts = [SequenceInput(each.cache, _random_tree(random)) for each in here]

        for each, part, rows in zip(here, parts, first.model.forward(parts), strict=True):
            each.check(part, rows)
            each.keep(part.tree, random.choice([None, *range(len(part.tree.branch_ids))]))


def test_a_window_counts_from_the_positions_of_stored_branches(make_model: MakeModel) -> None:
    """Half of the layers see five tokens only."""
    sequence = _new_sequence(make_model(family="gemma3_text", **_FAMILIES["gemma3_text"]))
    tree = TokenTree((1, 2), (3, 4), (None, 0))
    sequence.forward(tree)
    stored = sequence.cache.copy_branches(tree)
    sequence.keep(tree)
    part = SequenceInput(sequence.cache, TokenTree((), (3, 4, 5, 6, 7, 8, 9), (None, 0, 1, 2, 3, 4, 5)), tuple(stored))

    sequence.check(part, sequence.model.forward([part])[0])


@pytest.mark.parametrize(("dtype", "of_logits"), [("bfloat16", torch.bfloat16), ("float64", torch.float32)])
def test_logits_have_the_type_that_the_model_computes_in_but_at_most_float32(
    make_model: MakeModel, dtype: str, of_logits: torch.dtype
) -> None:
    runner = load_torch_runner(EngineConfig(make_model(), dtype=dtype))

    assert runner.forward([SequenceInput(runner.new_cache(), TokenTree((1,)))]).dtype == of_logits


class _AllRowsLlama(transformers.LlamaForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A model that returns the logits of all rows, not only the requested ones."""

    def forward(self, *, logits_to_keep: torch.Tensor | None = None, **others: Any) -> Any:  # noqa: ARG002  # that is the case
        return super().forward(**others)


class _NoRowsLlama(transformers.LlamaForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A model that cannot be asked for some rows only."""

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, *, use_cache: bool) -> Any:
        return super().forward(input_ids, position_ids=position_ids, use_cache=use_cache)


@pytest.mark.parametrize("family", [_AllRowsLlama, _NoRowsLlama])
def test_rows_are_selected_for_a_model_that_returns_all(family: type) -> None:
    model = build_model(build_config("llama", KV))
    tree = TokenTree((1, 2, 3), (4, 5), (None, 0))
    expected = _forward_once(Runner(model, torch.device("cpu")), tree)
    model.__class__ = family

    torch.testing.assert_close(_forward_once(Runner(model, torch.device("cpu")), tree), expected)


def _forward_once(runner: Runner, tree: TokenTree) -> torch.Tensor:
    return runner.forward([SequenceInput(runner.new_cache(), tree)])


def test_a_text_whose_logits_are_no_numbers_is_an_error_and_the_next_text_is_not(tmp_path: Path) -> None:
    folder = write_model(tmp_path, toy_tokenizer("qwen"))
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][300] = torch.nan  # as a float16 model that overflows after some texts
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    runner = load_torch_runner(EngineConfig(folder))

    with pytest.raises(ModelError, match="in float32, the model's logits are infinite or NaN"):
        runner.forward([SequenceInput(runner.new_cache(), TokenTree((5, 300)))])
    assert runner.forward([SequenceInput(runner.new_cache(), TokenTree((5, 6)))]).isfinite().all()


_LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 77,
}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("phi3", {"rope_parameters": _LONG_ROPE, "original_max_position_embeddings": 77, "pad_token_id": 0}),
        ("llama", {"rope_parameters": _LONG_ROPE}),
        (
            "gemma3_text",
            {
                **LAYER_TYPES,
                "rope_parameters": {
                    "full_attention": _LONG_ROPE,
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
            },
        ),
    ],
)
def test_a_sequence_is_no_longer_than_what_leaves_its_neighbours_unchanged(
    family: str, changes: dict[str, Any]
) -> None:
    model = build_model(build_config(family, KV | changes))
    runner = Runner(model, torch.device("cpu"))

    def forward_beside(num_tokens: int) -> torch.Tensor:
        segments = [build_lone_segment(range(8)), build_lone_segment(range(num_tokens - 8, num_tokens))]
        return runner.forward_segments(range(16), segments, (7,))

    assert runner.max_tokens == 77
    assert torch.equal(forward_beside(77), forward_beside(8))
    assert not torch.equal(forward_beside(78), forward_beside(8))


@pytest.mark.parametrize("rope_type", ["default", "linear", "dynamic", "yarn"])
def test_frequencies_that_stay_the_same_do_not_limit_a_sequence(rope_type: str) -> None:
    rope = {"rope_type": rope_type, "rope_theta": 10000.0, "factor": 4.0}
    runner = Runner(build_model(build_config("llama", {**KV, "rope_parameters": rope})), torch.device("cpu"))

    assert runner.max_tokens == 512


def test_a_lone_segment_tells_the_shapes_of_keys_and_values_and_stores_none() -> None:
    runner = Runner(build_model(build_config("llama", KV)), torch.device("cpu"))
    later = runner.forward_segments((1, 2, 3), [build_lone_segment(range(5, 8))], (2,))
    assert [call.shape for call in runner.last_calls] == [LayerShape(2, 8, 8)] * 2
    torch.testing.assert_close(
        later, runner.forward_segments((1, 2, 3), [build_lone_segment(range(3))], (2,))
    )  # rotary positions are relative
