"""A device of torch beside the CPU, which computes on the CPU. As on a GPU, operations on tensors of both devices fail.

It must be used inside `torch.inference_mode()`.
"""

from typing import Any

import torch
from torch import library as torch_library
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

_NAME = "other"
_MIXING = {"copy_", "to", "_to_copy", "index", "index_put_", "_index_put_impl_"}  # may have tensors of both devices


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
        """The numbers."""
        return self.data_on_cpu.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch annotates it as a method of objects
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(operation, args, kwargs or {})


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
    result = operation(*tree_map(_to_cpu, args), **tree_map(_to_cpu, kwargs))
    if operation._schema.is_mutable and name.endswith("_"):
        return args[0] if operation._schema.returns else None
    return tree_map(_to_device, result) if is_result_on_device else result


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
    _to_cpu(target).copy_(_to_cpu(source))
    return target
