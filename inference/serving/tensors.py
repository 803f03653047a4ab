"""Arrays to Triton's gRPC messages and back. Much less work than with tritonclient's objects for them."""

from collections.abc import Iterator, Mapping
from typing import Any  # the messages have no types

import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import triton_to_np_dtype

from inference.protocol.arrays import Array, FieldTypes, to_bytes

_NUM_LENGTH_BYTES = 4  # before each item of a BYTES tensor


def build_request(model_name: str, arrays: Mapping[str, Array], types: FieldTypes) -> Any:
    """The ModelInferRequest with these inputs."""
    request = service_pb2.ModelInferRequest(model_name=model_name)
    for name, array in arrays.items():
        request.inputs.add(name=name, datatype=types[name][0], shape=array.shape)
        request.raw_input_contents.append(_pack(array))
    return request


def read_outputs(response: Any) -> dict[str, Array]:
    """The outputs of a ModelInferResponse."""
    pairs = zip(response.outputs, response.raw_output_contents, strict=True)
    return {output.name: _unpack(output.datatype, raw).reshape(tuple(output.shape)) for output, raw in pairs}


def _pack(array: Array) -> bytes:
    if array.dtype != np.object_:
        return array.tobytes()
    items = [to_bytes(item) for item in array.reshape(-1)]
    return b"".join([len(item).to_bytes(_NUM_LENGTH_BYTES, "little") + item for item in items])


def _unpack(datatype: str, raw: bytes) -> Array:
    if datatype == "BYTES":
        return np.array([*_iter_items(raw)], np.object_)
    return np.frombuffer(raw, triton_to_np_dtype(datatype))


def _iter_items(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        start = at + _NUM_LENGTH_BYTES
        at = start + int.from_bytes(raw[at:start], "little")
        yield raw[start:at]
