"""A device of torch beside the CPU, which computes on the CPU and counts what a GPU would have to do.

As on a GPU, an operation on tensors of both devices fails. Launches of kernels, copies to the device and waits for it
are counted, so that code for GPUs is run and judged where there is none. Times mean nothing here.

It must be used inside `torch.inference_mode()`.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import library as torch_library
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

_NAME = "counting"
_CONVERTING = {"to", "_to_copy"}
_MIXING = {"copy_", *_CONVERTING, "index", "index_put_", "_index_put_impl_"}  # may have tensors of both devices
_NO_LAUNCH = {"empty", "empty_strided", "empty_like", "new_empty", "detach", "detach_", "alias", "view", "_unsafe_view"}
# They return a number of Python, or a tensor whose shape stands on the device.
_WAITING = {
    "_local_scalar_dense", "is_nonzero", "item", "equal", "nonzero", "nonzero_numpy", "argwhere", "masked_select",
    "repeat_interleave", "_unique2",
}  # fmt: skip


class Counts:
    """What the device has had to do."""

    def __init__(self) -> None:
        self.operations: Counter[str] = Counter()
        self.num_copies_in = 0
        self.num_waits = 0  # copies to the host among them

    @property
    def num_launches(self) -> int:
        """The number of kernels, if each operation is one."""
        return self.operations.total()


_counts = Counts()


class DeviceTensor(torch.Tensor):
    """A tensor on the device."""

    data_on_cpu: torch.Tensor

    @staticmethod
    def __new__(cls, data: torch.Tensor) -> "DeviceTensor":
        tensor: DeviceTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            data.shape,
            strides=data.stride(),
            storage_offset=data.storage_offset(),
            dtype=data.dtype,
            device=torch.device(_NAME, 0),
        )
        tensor.data_on_cpu = data
        return tensor

    def tolist(self) -> Any:
        """The numbers, which the host waits for."""
        _counts.num_waits += 1
        return self.data_on_cpu.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch annotates it as a method of objects
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(operation, args, kwargs or {})


@contextmanager
def counting() -> Iterator[Counts]:
    """Inside the context, what the device has to do is counted."""
    global _counts  # the device is one for the process, as a real one
    before, _counts = _counts, Counts()
    try:
        yield _counts
    finally:
        _counts = before


def register_device() -> torch.device:
    """The device, which this adds to torch the first time."""
    if not _library:
        backend_registration._setup_privateuseone_for_python_backend(_NAME)
        library: Any = torch_library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        for name, function in (
            ("empty.memory_format", _make_empty),
            ("empty_strided", _make_strided),
            ("_copy_from", _copy),
        ):
            library.impl(name, function, "PrivateUse1")
        _library.append(library)
    return torch.device(_NAME, 0)


_library: list[Any] = []  # keeps what was added to torch


def move_model(model: torch.nn.Module) -> None:
    """Moves the weights of a model to the device."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = torch.nn.Parameter(DeviceTensor(weight.data), requires_grad=False)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = DeviceTensor(buffer)


def run_kernel(name: str, function: Callable[..., torch.Tensor], *args: Any) -> Any:
    """Runs a function of the CPU in place of a kernel, which is none of torch's operations and takes two launches."""
    _counts.operations[name] += 2
    return _to_device(function(*map(_take_data, args)))


def _take_data(value: Any) -> Any:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return _to_cpu(value)
    fields = {each.name: tree_map(_to_cpu, getattr(value, each.name)) for each in dataclasses.fields(value)}
    return dataclasses.replace(value, **fields)


def _run(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = operation._schema.name.split("::")[1]
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    on_device = [isinstance(tensor, DeviceTensor) for tensor in tensors]
    target = next((leaf for leaf in leaves if isinstance(leaf, torch.device)), None)
    is_mixed = any(on_device) and not all(on_device)
    if is_mixed and name not in _MIXING:
        strange = [tensor for tensor, is_own in zip(tensors, on_device, strict=True) if not is_own and tensor.dim()]
        if strange:
            raise RuntimeError(f"{operation}: tensors on the device and on the CPU")
    is_result_on_device = any(on_device) if target is None else target.type == _NAME
    _count(name, on_device, is_result_on_device, is_mixed, _is_view(operation))
    _counts.num_waits += is_result_on_device and _has_mask_index(name, args)
    result = operation(*tree_map(_to_cpu, args), **tree_map(_to_cpu, kwargs))
    if operation._schema.is_mutable and name.endswith("_"):
        return args[0] if operation._schema.returns else None
    return tree_map(_to_device, result) if is_result_on_device else result


def _count(name: str, on_device: Sequence[bool], is_result_on_device: bool, is_mixed: bool, is_view: bool) -> None:
    if name in _CONVERTING and on_device[0] != is_result_on_device:
        _count_copy(is_result_on_device)
    elif name == "copy_" and is_mixed:
        _count_copy(on_device[0])
    elif name in _WAITING:
        _counts.num_waits += 1
    elif is_result_on_device and not is_view and name not in _NO_LAUNCH:
        _counts.num_copies_in += is_mixed and name in _MIXING  # indices on the CPU
        _counts.operations[name] += 1


def _count_copy(is_to_device: bool) -> None:
    _counts.num_copies_in += is_to_device
    _counts.num_waits += not is_to_device


def _has_mask_index(name: str, args: Any) -> bool:
    """Whether an operation takes the elements that a mask names, which the device must count first."""
    is_index = name in ("index", "index_put", "index_put_", "_index_put_impl_")
    return is_index and any(index is not None and index.dtype == torch.bool for index in args[1])


def _is_view(operation: Any) -> bool:
    return any(each.alias_info is not None and not each.alias_info.is_write for each in operation._schema.returns)


def _to_cpu(leaf: Any) -> Any:
    if isinstance(leaf, DeviceTensor):
        return leaf.data_on_cpu
    return torch.device("cpu") if isinstance(leaf, torch.device) else leaf


def _to_device(leaf: Any) -> Any:
    return DeviceTensor(leaf) if isinstance(leaf, torch.Tensor) and not isinstance(leaf, DeviceTensor) else leaf


def _make_empty(size: Any, dtype: Any = None, **_named: Any) -> DeviceTensor:
    return DeviceTensor(torch.empty(size, dtype=dtype))


def _make_strided(size: Any, stride: Any, dtype: Any = None, **_named: Any) -> DeviceTensor:
    return DeviceTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy(source: Any, target: Any, _is_async: bool = False) -> Any:
    if isinstance(source, DeviceTensor) != isinstance(target, DeviceTensor):
        _count_copy(isinstance(target, DeviceTensor))
    _to_cpu(target).copy_(_to_cpu(source))
    return target
