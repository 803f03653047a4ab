from typing import Any

import numpy as np
import pytest
import torch

from inference.config import EngineConfig
from inference.engine.sequence_memory import SequenceMemory
from inference.errors import OverloadedError
from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part, SampleRequest, SampleResult, Sampling
from inference.model.pytorch.loader import load_torch_runner
from inference.model.pytorch.runner import Runner, TorchModel
from inference.model.pytorch.sampler import build_sampler
from tests.inference.conftest import MakeModel
from tests.support.toys import toy_tokenizer

_GREEDY = Sampling(temperature=0.0, top_p=1.0)


@pytest.fixture
def runner(make_model: MakeModel) -> Runner:
    return load_torch_runner(EngineConfig(make_model("qwen"), dtype="float64"))


@pytest.fixture
def model(runner: Runner) -> TorchModel:
    toy = toy_tokenizer("qwen")
    return TorchModel(runner, build_sampler(runner.device, runner.dtype, toy.vocabulary, toy.trie))


def _build_part(model: TorchModel, token_ids: tuple[int, ...], wants_logits: bool = True) -> Part:
    return Part(model.new_cache(), TokenTree(token_ids), wants_logits=wants_logits)


def _choose(model: TorchModel, part: Part, rows: list[Any]) -> SampleResult:
    return model.choose([SampleRequest(part.tree, (Crossing(None, b"", Rule.EXTEND),), rows, _GREEDY)])[0]


def _fill_memory(*_args: Any, **_named: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_rows_are_in_the_order_of_the_parts_and_only_for_those_that_want_them(model: TorchModel) -> None:
    ids = [(5, 6), (5,), (7, 8)]
    together = model.forward([_build_part(model, token_ids, token_ids != (5,)) for token_ids in ids])

    alone = [model.forward([_build_part(model, token_ids)])[0] for token_ids in ids]
    assert [len(rows) for rows in together] == [1, 0, 1]
    for index in (0, 2):
        torch.testing.assert_close(
            torch.from_numpy(together[index][0].logits), torch.from_numpy(alone[index][0].logits), rtol=0, atol=1e-5
        )


def test_a_part_gives_a_row_for_its_end_and_for_each_branch_that_is_not_stored(model: TorchModel) -> None:
    part = Part(model.new_cache(), TokenTree((5, 6), (7, 8, 9), (None, 0, None)))
    [rows] = model.forward([part])
    stored = part.cache.copy_branches(part.tree)
    part.cache.keep(part.tree, None)
    further = Part(part.cache, TokenTree((), (7, 8, 9, 4), (None, 0, None, 1)), tuple(stored))
    [further_rows] = model.forward([further])

    assert (len(rows), part.num_new_rows) == (4, 5)
    assert (len(further_rows), further.num_new_rows) == (1, 1)


def test_random_sources_with_the_same_seed_agree_and_unseeded_ones_differ(model: TorchModel) -> None:
    seeds = [3, 3, 4, None, None]

    sources = [model.new_random_source(seed) for seed in seeds]
    draws = [source.random(4).tolist() for source in sources if isinstance(source, np.random.Generator)]

    assert draws[0] == draws[1]
    assert draws[1] != draws[2]
    assert draws[3] != draws[4]


def test_a_part_that_gets_no_memory_for_its_keys_is_an_overloaded_error(
    model: TorchModel, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, num_free = _build_part(model, (5,) * 900), runner._pool.num_free
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "new_empty", _fill_memory)
        with pytest.raises(OverloadedError, match="keys and values of"):
            model.forward([part])
    assert runner._pool.num_free == num_free

    assert len(model.forward([part])[0]) == 1


def test_idle_sequences_make_room_for_a_new_one(
    model: TorchModel, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, room = SequenceMemory(model.new_cache, max_bytes=1 << 30), runner._pool.num_free
    idle = [memory.take("tenant", (), room // 4) for _ in range(4)]
    for sequence in idle:
        memory.give_back(sequence)
    del idle, sequence
    monkeypatch.setattr(torch.Tensor, "new_empty", _fill_memory)  # the pool cannot grow

    memory.take("tenant", (), room)

    assert memory.num_idle_bytes == 0
    with pytest.raises(OverloadedError, match="keys and values of"):
        memory.take("tenant", (), room)


def test_a_forward_pass_without_memory_is_an_overloaded_error_and_can_be_retried(
    model: TorchModel, runner: Runner
) -> None:
    part, other = _build_part(model, (5, 6)), _build_part(model, (5, 6))
    expected = _choose(model, other, model.forward([other])[0])
    hook = runner._model.register_forward_hook(_fill_memory)
    with pytest.raises(OverloadedError, match="a forward pass over 2 tokens"):
        model.forward([part])
    hook.remove()

    [rows] = model.forward([part])

    assert part.cache.num_tokens == 0
    assert _choose(model, part, rows).choices == expected.choices
