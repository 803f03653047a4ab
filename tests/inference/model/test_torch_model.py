from typing import Any

import pytest
import torch

from inference.config import EngineConfig
from inference.errors import OverloadedError
from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.kv_cache import SequenceCache
from inference.model.language_model import SampleRequest, Sampling, Step
from inference.model.loader import load_runner
from inference.model.planes import LayerShape
from inference.model.runner import Runner
from inference.model.sampler import Sampler
from inference.model.torch_model import TorchModel
from tests.inference.conftest import MakeModel
from tests.support.toys import toy_tokenizer
from trie_cache.hot_prefixes import HotPrefixCache

_GREEDY = Sampling(temperature=0.0, top_p=1.0)


@pytest.fixture
def runner(make_model: MakeModel) -> Runner:
    return load_runner(EngineConfig(make_model("qwen"), dtype="float64"))


@pytest.fixture
def model(runner: Runner) -> TorchModel:
    toy = toy_tokenizer("qwen")
    return TorchModel(runner, Sampler(toy.vocabulary, HotPrefixCache(toy.trie), toy.trie, runner.device))


def _build_step(model: TorchModel, token_ids: tuple[int, ...], wants_choice: bool = True) -> Step:
    tree = TokenTree(token_ids)
    sample = SampleRequest(tree, (Crossing(None, b"", Rule.EXTEND),), _GREEDY)
    return Step(model.new_cache(), tree, sample if wants_choice else None)


def _fill_memory(*_args: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_results_are_in_the_order_of_the_steps_and_only_for_those_with_a_sample_request(model: TorchModel) -> None:
    together = model.step([_build_step(model, (5, 6)), _build_step(model, (5,), False), _build_step(model, (7, 8))])

    alone = [model.step([_build_step(model, token_ids)])[0] for token_ids in ((5, 6), (7, 8))]
    assert together[1] is None
    for result, lone in zip([together[0], together[2]], alone, strict=True):
        assert result is not None
        assert lone is not None
        assert result.choices == lone.choices


def test_random_sources_with_the_same_seed_agree_and_unseeded_ones_differ(model: TorchModel) -> None:
    seeds = [3, 3, 4, None, None]

    draws = [torch.rand(4, generator=model.new_random_source(seed)).tolist() for seed in seeds]

    assert draws[0] == draws[1]
    assert draws[1] != draws[2]
    assert draws[3] != draws[4]


def test_a_cache_without_memory_is_an_overloaded_error(model: TorchModel, runner: Runner) -> None:
    runner.layers = (LayerShape(num_kv_heads=1 << 25, key_dim=1 << 25, value_dim=1 << 25),)

    with pytest.raises(OverloadedError, match="keys and values of 256 tokens"):
        model.new_cache()


def test_a_forward_pass_without_memory_is_an_overloaded_error_and_can_be_retried(
    model: TorchModel, runner: Runner
) -> None:
    step = _build_step(model, (5, 6))
    [expected] = model.step([_build_step(model, (5, 6))])
    hook = runner._model.register_forward_hook(_fill_memory)
    with pytest.raises(OverloadedError, match="a forward pass over 2 tokens"):
        model.step([step])
    hook.remove()

    [result] = model.step([step])

    assert isinstance(step.cache, SequenceCache)
    assert step.cache.num_tokens == 0
    assert result is not None
    assert expected is not None
    assert result.choices == expected.choices
