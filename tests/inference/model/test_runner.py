from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
import torch
import transformers

from inference.config import EngineConfig
from inference.healing.token_tree import TokenTree
from inference.model.loader import load_runner
from inference.model.runner import Part, Runner
from tests.inference.conftest import MakeModel

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
}


def _load(folder: Path) -> tuple[Runner, transformers.PreTrainedModel]:
    """Loads the runner and the same model for transformers, both in float64, so that only mistakes differ."""
    runner = load_runner(EngineConfig(folder, dtype="float64"))
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
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


@pytest.mark.parametrize("family", _FAMILIES)
def test_each_node_gets_the_logits_of_its_own_path(family: str, make_model: MakeModel) -> None:
    """Several sequences in one pass, over several steps. Each step keeps some path. transformers is the oracle."""
    runner, plain = _load(make_model(family=family, **_FAMILIES[family]))
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
                torch.testing.assert_close(logits[row], expected, rtol=1e-4, atol=1e-4)
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


def test_max_tokens_is_the_window_in_which_rotary_frequencies_are_fixed(make_model: MakeModel) -> None:
    """Beyond `original_max_position_embeddings`, longrope changes the frequencies for all sequences of the pass."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
    }
    runner, _ = _load(
        make_model(family="phi3", rope_parameters=rope, original_max_position_embeddings=64, pad_token_id=0)
    )

    assert runner.max_tokens == 64
