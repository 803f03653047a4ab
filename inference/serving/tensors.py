"""Arrays to Triton's gRPC messages and back. Much less work than with tritonclient's objects for them."""

from collections.abc import Mapping
from typing import Any  # the messages have no types

import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor, triton_to_np_dtype

from inference.protocol.arrays import Array, FieldTypes


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
    return b"".join(serialize_byte_tensor(array).reshape(-1)) if array.dtype == np.object_ else array.tobytes()


def _unpack(datatype: str, raw: bytes) -> Array:
    return deserialize_bytes_tensor(raw) if datatype == "BYTES" else np.frombuffer(raw, triton_to_np_dtype(datatype))
