"""Triton's generate extension: a request is a JSON object, and so is each response.

tritonserver 2.51 has it too, but notices only when it sends something that a client has gone, and some bodies that are
not JSON crash it. So requests are sent to it over gRPC.
"""

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any  # JSON has no types

import numpy as np
from aiohttp import web

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    MidtokenError,
    OverloadedError,
    ServerUnreachableError,
)
from inference.protocol import characters, completion_arrays
from inference.protocol.arrays import Array, FieldTypes, check_known, error_to_response, to_array
from inference.serving.calls import CHARACTERS, COMPLETION
from inference.serving.client import Client

PATH = "/v2/models/{model}{version:(/versions/1)?}/{call:generate|generate_stream}"
STARTING = "tritonserver does not answer; it may be starting."
_TYPES = {COMPLETION: completion_arrays.REQUEST_TYPES, CHARACTERS: characters.REQUEST_TYPES}
# Fields that may have any number of values. In a response, these are a list also if there is one.
_LISTS = {"stop", "related", *completion_arrays.PROBABILITIES, "probabilities", "surprisals", "generated_bytes"}
_STATUSES = {
    InvalidRequestError: 400,
    OverloadedError: 503,
    InferenceServerUnreachableError: 503,
    ServerUnreachableError: 503,
    MidtokenError: 500,
}
_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {  # by NumPy's kind of type
    "O": ((str,), "a string"),
    "b": ((bool,), "true or false"),
    "i": ((int,), "a whole number"),
    "f": ((int, float), "a number"),
}


async def generate(client: Client, request: web.Request) -> web.StreamResponse:
    """Answers a request for a path of the form PATH. It is cancelled if its connection ends."""
    model, response = request.match_info["model"], None
    try:
        if model not in _TYPES:
            return refuse(404, f"there is no model {model}; there are {' and '.join(_TYPES)}")
        arrays = _read_request(await request.read(), _TYPES[model])
        async with aclosing(client.exchange(model, arrays)) as answers:
            if request.match_info["call"] == "generate":
                return _write_only([_write_answer(model, each) async for each in answers])
            async for answer in answers:
                if response is None:
                    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                    await response.prepare(request)
                await response.write(f"data: {_write_answer(model, answer)}\n\n".encode())
    except MidtokenError as error:
        reason = STARTING if isinstance(error, ServerUnreachableError) else error_to_response(error)[0]
        if response is None:
            return refuse(next(status for kind, status in _STATUSES.items() if isinstance(error, kind)), reason)
        await response.write(f"data: {json.dumps({'error': reason})}\n\n".encode())
    assert response is not None, "there is an answer, or an error"
    return response


def refuse(status: int, reason: str) -> web.Response:
    """The answer to a request that is refused."""
    return web.json_response({"error": reason}, status=status)


def _write_only(answers: list[str]) -> web.Response:
    """The response of `generate`. Raises InvalidRequestError if there are several."""
    if len(answers) > 1:
        raise InvalidRequestError(f"generate returns one response, not {len(answers)}; use generate_stream")
    return web.json_response(text=answers[0])


def _read_request(body: bytes, types: FieldTypes) -> dict[str, Array]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequestError("the body is not JSON in UTF-8") from None
    if not isinstance(fields, dict):
        raise InvalidRequestError("the body must be a JSON object")
    check_known(fields, types)
    return {name: _read_field(name, value, types[name][1]) for name, value in fields.items()}


def _read_field(name: str, value: Any, dtype: type) -> Array:
    items = value if isinstance(value, list) else [value]
    if len(items) != 1 and name not in _LISTS:
        raise InvalidRequestError(f"{name} takes one value, not {len(items)}")
    kind = np.dtype(dtype).kind
    kinds, described = _KINDS[kind]
    if any(type(item) not in kinds for item in items):
        raise InvalidRequestError(f"{name} must be {described}")
    if kind in "if":
        limits: Any = np.iinfo(dtype) if kind == "i" else np.finfo(dtype)
        # Python compares any numbers; NumPy 2 converts `item` to its own type first, and fails if it does not fit.
        lowest, highest = dtype(limits.min).item(), dtype(limits.max).item()
        if not all(lowest <= item <= highest for item in items):
            raise InvalidRequestError(f"{name} is out of the range of {limits.dtype}")
    return to_array(items, dtype)


def _write_answer(model: str, arrays: Mapping[str, Array]) -> str:
    fields: dict[str, Any] = {"model_name": model, "model_version": "1"}
    for name, array in arrays.items():
        items = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
        fields[name] = items if name in _LISTS else items[0]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
