from typing import Any

import pytest

from inference.errors import ModelError
from inference.model.pytorch.transformers_hook import Reach, build_reach


class _MaskConfig:
    sliding_window = 5
    attention_chunk_size = 4


def test_the_reach_of_a_mask_is_its_window_or_its_chunk() -> None:
    assert build_reach(config=_MaskConfig()) == Reach()
    assert build_reach(config=_MaskConfig(), local_size=5) == Reach(window=5)
    assert build_reach(config=_MaskConfig(), local_size=4) == Reach(chunk=4)


_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "later tokens": ({"allow_is_bidirectional_skip": True}, "lets tokens see those after them"),
    "another mask": ({"use_vmap": True}, "joins the mask of earlier tokens with another one"),
    "window or chunk": ({"local_size": 4}, "cannot be told apart"),
}


@pytest.mark.parametrize("kind", _FAULTS)
def test_a_mask_that_does_more_has_a_fault(kind: str) -> None:
    arguments, reason = _FAULTS[kind]
    config = _MaskConfig()
    config.sliding_window = 4

    fault = build_reach(config=config, **arguments).fault

    assert fault is not None
    assert reason in fault


def test_code_that_computes_with_a_mask_is_refused() -> None:
    with pytest.raises(ModelError, match=r"computes with the attention's mask \(.dtype\)"):
        Reach().dtype  # noqa: B018  # as such code does
    with pytest.raises(ModelError, match="takes a part of the attention's mask"):
        Reach()[..., :1]
