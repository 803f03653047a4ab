"""The arrays of a request that Triton passes to a model."""

import json
from collections.abc import Callable
from typing import Any  # Triton's requests and tensors have no types

from inference.errors import InvalidRequestError
from inference.protocol.arrays import Array, FieldTypes, check_known


def read_inputs(request: Any, get_tensor: Callable[[Any, str], Any], types: FieldTypes) -> dict[str, Array]:
    """The arrays of the inputs in `types` that the request has.

    `get_tensor` is Triton's `get_input_tensor_by_name`. Raises InvalidRequestError for a JSON field that is not an
    input: Triton turns such fields of an HTTP request into parameters.
    """
    parameters = _read_parameters(request)
    check_known(parameters, types)
    if parameters:
        raise InvalidRequestError(f"{next(iter(parameters))} is a parameter of the request; give it as an input")
    tensors = {name: get_tensor(request, name) for name in types}
    return {name: tensor.as_numpy() for name, tensor in tensors.items() if tensor is not None}


def _read_parameters(request: Any) -> dict[str, Any]:
    try:
        parameters: dict[str, Any] = json.loads(request.parameters() or "{}")
    except ValueError:  # bytes that are not UTF-8, and the JSON that Triton writes for them
        raise InvalidRequestError("the names and values of the request's fields must be UTF-8") from None
    return parameters
