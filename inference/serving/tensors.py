"""Arrays as the tensors of Triton's gRPC messages, in requests and in answers."""

from collections.abc import Callable, Mapping
from typing import Any  # tritonclient has no types

import numpy as np
from tritonclient.utils import (
    deserialize_bytes_tensor,
    np_to_triton_dtype,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

from inference.protocol.arrays import Array

COMPLETION, CHARACTERS = "completion", "characters"  # the names of the models


def add_tensors(tensors: Any, contents: Any, arrays: Mapping[str, Array]) -> None:
    """Adds the arrays to the `inputs` and `raw_input_contents` of a message, or to its outputs."""
    for name, array in arrays.items():
        tensors.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        is_bytes = array.dtype == np.object_
        contents.append(b"".join(serialize_byte_tensor(array).reshape(-1)) if is_bytes else array.tobytes())


def read_tensors(tensors: Any, contents: Any) -> dict[str, Array]:
    """The arrays in the `inputs` and `raw_input_contents` of a message, or in its outputs."""
    pairs = zip(tensors, contents, strict=True)
    return {each.name: _unpack(each.datatype, content).reshape(tuple(each.shape)) for each, content in pairs}


def _unpack(datatype: str, content: bytes) -> Array:
    read: Callable[[bytes], Array] = deserialize_bytes_tensor
    return read(content) if datatype == "BYTES" else np.frombuffer(content, triton_to_np_dtype(datatype))
