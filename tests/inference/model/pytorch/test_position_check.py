"""Models whose positions beyond a threshold change a whole forward pass, with tiny random weights."""

from typing import Any

import pytest
import torch
import transformers

from inference.errors import ModelError
from inference.model.pytorch.forward_check import find_max_tokens
from inference.model.pytorch.pool import LayerShape, build_lone_segment
from inference.model.pytorch.runner import Runner
from tests.support.tiny_families import KV, build_config, build_model

_CPU = torch.device("cpu")


def _longrope(threshold: int) -> dict[str, Any]:
    """Frequencies that change for all positions of a pass once one of them reaches `threshold`."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "original_max_position_embeddings": threshold,
    }
    return {"rope_parameters": rope, "original_max_position_embeddings": threshold, "pad_token_id": 0}


def _build(family: str, dtype: torch.dtype = torch.float32, **changes: Any) -> tuple[Any, Runner]:
    model = build_model(build_config(family, KV | changes), dtype)
    return model, Runner(model, _CPU)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["phi3", "llama"])
def test_a_sequence_is_no_longer_than_what_leaves_its_neighbours_unchanged(family: str, dtype: torch.dtype) -> None:
    model, runner = _build(family, dtype, **_longrope(77))

    assert find_max_tokens(model, runner) == 77


@pytest.mark.parametrize("rope_type", ["default", "linear", "dynamic", "yarn"])
def test_frequencies_that_stay_the_same_do_not_limit_a_sequence(rope_type: str) -> None:
    model, runner = _build("llama", rope_parameters={"rope_type": rope_type, "rope_theta": 10000.0, "factor": 4.0})

    assert find_max_tokens(model, runner) == 512


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}}),
        ("gpt2", {}),
    ],
    ids=["frequencies that grow", "positions without an embedding"],
)
def test_positions_beyond_those_of_the_model_limit_a_sequence(family: str, changes: dict[str, Any]) -> None:
    model, runner = _build(family, **changes)
    runner.max_tokens = 2000

    assert find_max_tokens(model, runner) == 512
    assert find_max_tokens(model, runner) == 512  # the first search left nothing behind


class _CountingLlama(transformers.LlamaForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A model that keeps a state from one pass to the next."""

    def forward(self, *arguments: Any, **named: Any) -> Any:
        self.num_passes = getattr(self, "num_passes", 0) + 1
        return super().forward(*arguments, **named)


def test_a_state_that_is_kept_from_pass_to_pass_is_refused() -> None:
    model, runner = _build("llama")
    model.__class__ = _CountingLlama

    with pytest.raises(ModelError, match="keeps a state from one forward pass to the next"):
        find_max_tokens(model, runner)


class _ImpulsiveLlama(transformers.LlamaForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A model that keeps no state, and changes all logits of a pass once one of its positions is 100."""

    def forward(self, input_ids: torch.Tensor, **others: Any) -> Any:
        output = super().forward(input_ids, **others)
        if others.get("position_ids") is not None and others["position_ids"].max() >= 100:
            output.logits = output.logits.flip(-1)
        return output


def test_a_neighbour_that_changes_the_logits_without_a_trace_is_too_long() -> None:
    model, runner = _build("llama")
    model.__class__ = _ImpulsiveLlama

    assert find_max_tokens(model, runner) == 100


def test_a_threshold_that_leaves_no_room_is_refused() -> None:
    model, runner = _build("phi3", **_longrope(12))

    with pytest.raises(ModelError, match="a sequence of more than 12 tokens would change"):
        find_max_tokens(model, runner)


def test_a_lone_segment_tells_the_shapes_of_keys_and_values_and_stores_none() -> None:
    _, runner = _build("llama")
    later = runner.forward_segments((1, 2, 3), [build_lone_segment(range(5, 8))], (2,))
    assert [call.shape for call in runner.last_calls] == [LayerShape(2, 8, 8)] * 2
    torch.testing.assert_close(
        later, runner.forward_segments((1, 2, 3), [build_lone_segment(range(3))], (2,))
    )  # rotary positions are relative
