from typing import Any

import pytest
import torch

from inference.model.pytorch.forward_check import NARROW_CHUNK, NARROW_WINDOW, narrow_windows
from tests.support.tiny_families import EXPERTS, KV, LAYER_TYPES, build_config, build_model


def _read_sizes(model: torch.nn.Module, name: str) -> set[Any]:
    """The values of an attribute in the model's configuration and modules."""
    owners = [model.config, *model.modules()]
    return {getattr(owner, name) for owner in owners if isinstance(getattr(owner, name, None), int)}


@pytest.mark.parametrize(
    ("family", "changes", "name", "narrow"),
    [
        ("mistral", KV, "sliding_window", NARROW_WINDOW),
        ("gemma3_text", {**KV, **LAYER_TYPES}, "sliding_window", NARROW_WINDOW),
        ("llama4_text", {**KV, **EXPERTS, "pad_token_id": 0}, "attention_chunk_size", NARROW_CHUNK),
    ],
)
def test_all_windows_are_narrow_for_a_while(family: str, changes: dict[str, Any], name: str, narrow: int) -> None:
    model = build_model(build_config(family, {**changes, name: 100}))

    with narrow_windows(model):
        inside = _read_sizes(model, name)

    assert inside == {narrow}
    assert _read_sizes(model, name) == {100}


def test_a_window_that_is_narrow_already_stays() -> None:
    model = build_model(build_config("mistral", {**KV, "sliding_window": 3}))

    with narrow_windows(model):
        assert _read_sizes(model, "sliding_window") == {3}
