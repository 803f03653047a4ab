"""Finds how long sequences may be so that the length of one does not change the logits of its neighbours.

Some families change the frequencies of all rotary positions of a pass once one of them is beyond a threshold, and may
keep the changed frequencies for the next pass. Sequences must stay below such a threshold.
"""

from bisect import bisect_left
from typing import Any

import torch

from inference.errors import ModelError
from inference.model.pytorch.forward_check import find_differences, find_neighbour_tolerance
from inference.model.pytorch.pool import build_lone_segment
from inference.model.pytorch.runner import Runner

_NUM_TOKENS = 8  # of the sequences below
_MIN_TOKENS = 16  # a shorter limit is useless

_State = dict[str, Any]  # tensors and numbers, by the names of their modules and attributes


def find_max_tokens(model: Any, runner: Runner) -> int:  # a transformers model, which has no types
    """The most tokens of a sequence, at most `runner.max_tokens`. Raises ModelError if a shorter one is no use."""
    check = _NeighbourCheck(model, runner)
    if check.is_changed_by(_NUM_TOKENS):
        raise ModelError("its code keeps a state from one forward pass to the next")
    max_tokens = runner.max_tokens
    if check.is_changed_by(max_tokens):
        max_tokens = bisect_left(range(max_tokens), True, _NUM_TOKENS + 1, key=check.is_changed_by) - 1
    if check.is_changed_by(_NUM_TOKENS):  # also ends what the longest sequence has changed
        raise ModelError("its code keeps a state from one forward pass to the next")
    if max_tokens < min(_MIN_TOKENS, runner.max_tokens):
        raise ModelError(f"a sequence of more than {max_tokens} tokens would change the logits of its neighbours")
    return max_tokens


class _NeighbourCheck:
    """Whether the last tokens of a long sequence change a short one in the same pass, or anything in the model."""

    def __init__(self, model: Any, runner: Runner) -> None:
        self._model = model
        self._runner = runner
        self._logits = self._forward_beside(_NUM_TOKENS)
        self._state = _read_state(model)

    def is_changed_by(self, num_tokens: int) -> bool:
        """Forwards the short sequence beside the last tokens of one with `num_tokens`."""
        try:
            logits = self._forward_beside(num_tokens)
        except IndexError:  # no embedding of the position
            return True
        is_close = find_differences(logits, self._logits).max().item() <= find_neighbour_tolerance(self._runner.dtype)
        return not (is_close and _are_equal(_read_state(self._model), self._state))

    def _forward_beside(self, num_tokens: int) -> torch.Tensor:
        """The logits after the short sequence."""
        short = build_lone_segment(range(_NUM_TOKENS))
        long = build_lone_segment(range(num_tokens - _NUM_TOKENS, num_tokens))
        return self._runner.forward_segments(range(2 * _NUM_TOKENS), [short, long], (_NUM_TOKENS - 1,))


def _read_state(model: Any) -> _State:
    """Copies of all numbers and tensors that the modules of `model` hold, but for the weights."""
    return {
        f"{path}.{name}": value.clone() if isinstance(value, torch.Tensor) else value
        for path, module in model.named_modules()
        for name, value in (*vars(module).items(), *module._buffers.items())
        if isinstance(value, torch.Tensor | int | float)
    }


def _are_equal(one: _State, other: _State) -> bool:
    return one.keys() == other.keys() and all(
        type(value) is type(other[name])
        and bool(torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name])
        for name, value in one.items()
    )
