from collections.abc import Sequence
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
from inference.model.loader import load_runner
from inference.model.runner import Part, Runner
from tests.inference.conftest import MakeModel
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


def _load(folder: Path, dtype: str = "float64") -> tuple[Runner, transformers.PreTrainedModel]:
    """Loads the runner and the same model for transformers, both in float64, so that only mistakes differ."""
    runner = load_runner(EngineConfig(folder, dtype=dtype))
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return runner, plain.eval()


def _plain_logits(plain: transformers.PreTrainedModel, ids: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = plain(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, -1].float()
    return logits


def _random_tree(random: Random, vocab_size: int) -> TokenTree:
    chain = tuple(random.choices(range(vocab_size), k=random.choice([1, 1, 2, 9])))
    branches = random.choices(range(vocab_size), k=random.choice([0, 0, 1, 4, 7]))
    parents = [random.choice([None, *range(index)]) for index in range(len(branches))]
    return TokenTree(chain, tuple(branches), tuple(parents))


@pytest.mark.parametrize("family", [*_FAMILIES, *_EXPERT_FAMILIES])
def test_each_node_gets_the_logits_of_its_own_path(family: str, make_model: MakeModel) -> None:
    """Several sequences in one pass, over several steps. Each step keeps some path. transformers is the oracle."""
    dtype = "float64" if family in _FAMILIES else "float32"
    runner, plain = _load(make_model(family=family, **(_FAMILIES | _EXPERT_FAMILIES)[family]), dtype)
    random = Random(11)
    caches = [runner.new_cache() for _ in range(3)]
    kept: list[list[int]] = [[] for _ in caches]
    for _ in range(5):
        here = random.sample(range(3), k=random.randint(1, 3))
        trees = [_random_tree(random, runner.vocab_size) for _ in here]

        logits = runner.forward([Part(caches[index], tree) for index, tree in zip(here, trees, strict=True)])

        row = 0
        for index, tree in zip(here, trees, strict=True):
            for node in (None, *range(len(tree.branch_ids))):
                path = [tree.branch_ids[branch] for branch in tree.find_path(node)]
                expected = _plain_logits(plain, [*kept[index], *tree.chain_ids, *path])
                torch.testing.assert_close(logits[row], expected, rtol=1e-3, atol=1e-3)
                row += 1
            node = random.choice([None, *range(len(tree.branch_ids))])
            caches[index].keep(tree, node)
            kept[index] += [*tree.chain_ids, *(tree.branch_ids[branch] for branch in tree.find_path(node))]
        assert row == len(logits)


def test_a_context_read_in_pieces_gives_the_logits_of_one_read_at_once(make_model: MakeModel) -> None:
    runner, plain = _load(make_model())
    context = Random(2).choices(range(runner.vocab_size), k=300)
    cache = runner.new_cache()
    for start in (0, 120, 240):
        piece = TokenTree(tuple(context[start : start + 120]))
        logits = runner.forward([Part(cache, piece, wants_logits=start == 240)])
        cache.keep(piece, None)

    torch.testing.assert_close(logits[0], _plain_logits(plain, context), rtol=1e-4, atol=1e-4)


def test_a_step_that_requests_no_logits_gets_none(make_model: MakeModel) -> None:
    runner, _ = _load(make_model())

    logits = runner.forward([Part(runner.new_cache(), TokenTree((1, 2)), wants_logits=False)])

    assert logits.shape == (0, runner.vocab_size)


def test_a_forked_cache_changes_independently(make_model: MakeModel) -> None:
    runner, plain = _load(make_model())
    cache, tree = runner.new_cache(), TokenTree((1, 2, 3), (4, 5), (None, None))
    runner.forward([Part(cache, tree)])
    other = cache.fork()
    cache.keep(tree, 0)
    other.keep(tree, 1)

    logits = runner.forward([Part(cache, TokenTree((6,))), Part(other, TokenTree((7,)))])

    torch.testing.assert_close(logits[0], _plain_logits(plain, [1, 2, 3, 4, 6]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits[1], _plain_logits(plain, [1, 2, 3, 5, 7]), rtol=1e-4, atol=1e-4)


def test_logits_are_float32_whatever_the_model_computes_in(make_model: MakeModel) -> None:
    runner = load_runner(EngineConfig(make_model(), dtype="bfloat16"))

    assert runner.forward([Part(runner.new_cache(), TokenTree((1,)))]).dtype == torch.float32


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
    return runner.forward([Part(runner.new_cache(), tree)])


def test_a_text_whose_logits_are_no_numbers_is_an_error_and_the_next_text_is_not(tmp_path: Path) -> None:
    folder = write_model(tmp_path, toy_tokenizer("qwen"))
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][300] = torch.nan  # as a float16 model that overflows after some texts
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    runner = load_runner(EngineConfig(folder))

    with pytest.raises(ModelError, match="in float32, the model's logits are infinite or no numbers"):
        runner.forward([Part(runner.new_cache(), TokenTree((5, 300)))])
    assert runner.forward([Part(runner.new_cache(), TokenTree((5, 6)))]).isfinite().all()
