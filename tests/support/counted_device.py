"""A device for tests whose copies from and to the host are counted. It computes on the CPU.

Its tensors say that they are on `DEVICE`, and hold a tensor of the CPU. Each operation of torch passes through
`CountedDevice`, which sees both sides of a copy. An operation that mixes host and device, or that makes the host wait
for a number, is counted too: these are the hidden copies. Use it in `torch.inference_mode`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

DEVICE = torch.device("meta")  # the one device without memory that every build of torch has

_aten = torch.ops.aten
# The shape of their result stands on the device: on a GPU, the host waits for it.
_WAITING = {
    _aten.nonzero.default,
    _aten.nonzero_numpy.default,
    _aten.where.default,
    _aten.argwhere.default,
    _aten.masked_select.default,
    _aten.repeat_interleave.Tensor,
    _aten._unique2.default,
}


class _DeviceTensor(torch.Tensor):
    held: torch.Tensor  # on the CPU

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "_DeviceTensor":
        wrapper: _DeviceTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        wrapper.held = held
        return wrapper

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own annotation lacks the operation
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{operation} was called on a counted tensor outside a CountedDevice")


class CountedDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
    """Inside this context, `DEVICE` has memory, and the copies from and to it are counted."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.copies: Counter[str] = Counter()  # "to device", "to host", "hidden"

    def __torch_dispatch__(
        self, operation: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = _flatten((args, dict(kwargs or {})))
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        devices = [each for each in given if isinstance(each, torch.device)]
        was_on_device = any(isinstance(each, _DeviceTensor) for each in tensors)
        goes_to_device = devices[0] == DEVICE if devices else was_on_device
        result = operation(*tree_map(_unwrap, args), **tree_map(_unwrap, dict(kwargs or {})))
        is_number = isinstance(result, bool | int | float)
        if tensors and was_on_device != goes_to_device:
            self.copies["to device" if goes_to_device else "to host"] += 1
        elif was_on_device and (
            is_number or operation in _WAITING or _indexes_by_mask(operation, args) or _mixes(tensors)
        ):
            self.copies["hidden"] += 1
        return tree_map(_wrap if goes_to_device else _unwrap, result)


def to_device(held: torch.Tensor) -> torch.Tensor:
    """A tensor that is on `DEVICE` already."""
    return _DeviceTensor(held)


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for each in value for leaf in _flatten(each)] if isinstance(value, list | tuple) else [value]


def _mixes(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether some tensors are on the host. Numbers that stand in the code, of no dimension, need no copy."""
    return any(not isinstance(each, _DeviceTensor) and each.dim() > 0 for each in tensors)


def _indexes_by_mask(operation: Any, args: tuple[Any, ...]) -> bool:
    is_index = operation in {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default}
    return is_index and any(index is not None and index.dtype == torch.bool for index in args[1])


def _unwrap(value: Any) -> Any:
    if isinstance(value, _DeviceTensor):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _wrap(value: Any) -> Any:
    return _DeviceTensor(value) if isinstance(value, torch.Tensor) else value
