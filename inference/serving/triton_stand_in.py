"""What the adapters in the model repository use of Triton, for a server without it."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any  # tritonclient has no types

from tritonclient.grpc import service_pb2

from inference.protocol.arrays import Array
from inference.serving.tensors import add_tensors, read_tensors

NAME = "triton_python_backend_utils"  # which exists only inside Triton's stubs


def build_stand_in() -> ModuleType:
    """Returns the module that the adapters import by `NAME`."""
    module, say = ModuleType(NAME), partial(print, file=sys.stderr, flush=True)
    module.__dict__.update(
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=1,
        Logger=SimpleNamespace(log_info=say, log_error=say),
        MetricFamily=_MetricFamily,
        Tensor=lambda name, array: (name, array),
        TritonError=_TritonError,
        InferenceResponse=_build_response,
        get_input_tensor_by_name=lambda request, name: request.find_input(name),
    )
    return module


class Request:
    """A request as an adapter sees it. `read` returns its answers one after the other, until one is the last."""

    def __init__(self, message: Any) -> None:
        """`message`: a ModelInferRequest. Must be called in the event loop that reads the answers."""
        self.arrays: Mapping[str, Array] = read_tensors(message.inputs, message.raw_input_contents)
        self._parameters = list(message.parameters)
        self._loop, self._answers = asyncio.get_running_loop(), asyncio.Queue[tuple[Any, int]]()
        self._is_cancelled = False

    async def read(self) -> tuple[Any, bool]:
        """Returns the next answer, and whether it is the last."""
        answer, flags = await self._answers.get()
        return answer, bool(flags)

    def cancel(self) -> None:
        """Nobody reads the answers any more."""
        self._is_cancelled = True

    def find_input(self, name: str) -> Any:
        """An input of the request; None if it has none of this name."""
        return SimpleNamespace(as_numpy=lambda: self.arrays[name]) if name in self.arrays else None

    def parameters(self) -> str:
        """The request's parameters as JSON."""
        return json.dumps(dict.fromkeys(self._parameters))

    def get_response_sender(self) -> "Request":
        """An object with the next two methods, which are thread-safe."""
        return self

    def is_cancelled(self) -> bool:
        """Whether the client has cancelled the request."""
        return self._is_cancelled

    def send(self, answer: Any, flags: int = 0) -> None:
        """Sends an answer. Flags other than 0: it is the last."""
        self._loop.call_soon_threadsafe(self._answers.put_nowait, (answer, flags))


def _build_response(tensors: Sequence[tuple[str, Array]] = (), error: "_TritonError | None" = None) -> Any:
    if error is not None:
        return service_pb2.ModelStreamInferResponse(error_message=error.message)
    response = service_pb2.ModelStreamInferResponse()
    answer = response.infer_response
    add_tensors(answer.outputs, answer.raw_output_contents, dict(tensors))
    return response


class _TritonError:
    INVALID_ARG = UNAVAILABLE = INTERNAL = ""  # a gRPC stream transmits only the message

    def __init__(self, message: str, _code: str) -> None:
        self.message = message


class _MetricFamily:
    """Metrics that nobody reads."""

    COUNTER = HISTOGRAM = ""

    def __init__(self, *_name_description_kind: str) -> None: ...

    def Metric(self, **_labels_and_buckets: Any) -> Any:  # noqa: N802  # Triton's name
        return self

    def increment(self, _value: float) -> None: ...

    observe = increment
