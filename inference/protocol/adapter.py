"""What the adapters in the model repository have in common: between Triton's objects and our arrays.

An adapter is decoupled: `execute` passes each request on and returns, and another thread sends the answer. Every
request ends in exactly one response with the FINAL flag, the end of its answer or an error. Without it, the stream
would never close. A heartbeat request is answered at once.
"""

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any  # Triton's objects have no types

from inference.config import EngineConfig, config_from_strings, strings_from_environment
from inference.errors import (
    InvalidRequestError,
    MidtokenError,
    describe_failure,
    keep_text_out_of_logs,
    to_public_error,
)
from inference.protocol.arrays import (
    HEARTBEAT,
    HEARTBEAT_TYPES,
    Array,
    FieldTypes,
    asks_for_heartbeat,
    check_known,
    error_to_response,
    heartbeat_to_arrays,
)
from inference.protocol.completion import CompletionChunk

_log = logging.getLogger(__name__)

# Between two questions. Each is a round trip that takes the model's time, and a superseded request ends without one.
_PAUSE_S = 0.004

Ask = Callable[[], bool]  # asks whether a request was cancelled, and notes the answer; False: needs no other question


class Adapter:
    """A model of Triton's Python backend. Its settings are config.pbtxt's parameters, then MIDTOKEN_* variables."""

    engine: Any  # with `submit`, `measure_heartbeat_ms` and `close`; a subclass makes it when Triton loads the model

    def __init__(
        self,
        triton: Any,
        types: FieldTypes,
        read: Callable[[Mapping[str, Array]], Any],
        write: Callable[[Any], dict[str, Array]],
    ) -> None:
        """`triton`: the module of the backend. `types`: of the inputs.

        `read` makes a request of its arrays, `write` arrays of a part of the answer.
        """
        keep_text_out_of_logs()  # of the stub that Triton runs it in
        self._triton, self._types = triton, types | HEARTBEAT_TYPES
        self._read, self._write = read, write
        self._cancels = CancelWatch()
        self.describe: Callable[[], dict[str, Array]] = dict  # beside the answer to a heartbeat
        self.note_end: Callable[[Any], object] = lambda _end: None  # gets the last part, or the error

    def read_config(self, args: dict[str, str], environment: Mapping[str, str]) -> EngineConfig:
        """The settings. `args`: of Triton. Raises ModelError if one is missing or invalid."""
        parameters = json.loads(args["model_config"])["parameters"]
        strings = {name: value["string_value"] for name, value in parameters.items()}
        return config_from_strings(strings | strings_from_environment(environment))

    def execute(self, requests: Iterable[Any]) -> None:
        """Answers heartbeat requests at once, and passes all others to the engine."""
        for request in requests:
            sink = Sink(self._triton, request.get_response_sender(), self._write, self.note_end)
            try:
                self._take(request, sink)
            except Exception as error:  # an exception raised here would leave the stream open
                sink.fail(to_public_error(error, self._triton.Logger.log_error))

    def finalize(self) -> None:
        """Fails the unfinished requests and stops the threads."""
        self.engine.close()
        self._cancels.close()

    def _take(self, request: Any, sink: "Sink") -> None:
        arrays = read_inputs(request, self._triton.get_input_tensor_by_name, self._types)
        if asks_for_heartbeat(arrays):
            sink.end(heartbeat_to_arrays(self.engine.measure_heartbeat_ms()) | self.describe())
            return
        arrays.pop(HEARTBEAT, None)
        self.engine.submit(self._read(arrays), sink)
        self._cancels.add(sink.ask)


class Sink:
    """Sends one request's answer to Triton. Calls after the end are ignored."""

    def __init__(
        self,
        triton: Any,
        sender: Any,
        write: Callable[[Any], dict[str, Array]],
        note_end: Callable[[Any], object],
    ) -> None:
        self._triton, self._sender, self._write, self._note_end = triton, sender, write, note_end
        self._is_ended, self._is_cancelled = False, False
        self._lock = threading.Lock()  # after the end, Triton must not be asked about a request

    def send(self, part: Any) -> None:
        """Sends a part of the answer: a chunk of a completion, or all of another answer."""
        if not isinstance(part, CompletionChunk) or part.is_last:
            self.end(self._write(part), part)
        elif not self._is_ended:
            self._sender.send(self._build_response(self._write(part)))

    def fail(self, error: MidtokenError) -> None:
        """Sends the error that ends the answer."""
        text, code = error_to_response(error)
        triton_error = self._triton.TritonError(text, getattr(self._triton.TritonError, code))
        self._end(self._triton.InferenceResponse(error=triton_error), error)

    def end(self, arrays: Mapping[str, Array], part: Any = None) -> None:
        """Sends the last arrays. `part`: what they are made of; None if nobody is to note it."""
        self._end(self._build_response(arrays), part)

    def is_cancelled(self) -> bool:
        """Whether the client has cancelled the request, as far as is known."""
        return self._is_cancelled

    def ask(self) -> bool:
        """Asks Triton whether the request was cancelled. Returns False if that is known, or the request has ended."""
        with self._lock:
            self._is_cancelled = self._is_cancelled or (not self._is_ended and bool(self._sender.is_cancelled()))
            return not self._is_cancelled and not self._is_ended

    def _build_response(self, arrays: Mapping[str, Array]) -> Any:
        return self._triton.InferenceResponse([self._triton.Tensor(*each) for each in arrays.items()])

    def _end(self, response: Any, end: Any) -> None:
        with self._lock:
            was_ended, self._is_ended = self._is_ended, True
        if not was_ended:
            self._sender.send(response, flags=self._triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            if end is not None:
                self._note_end(end)


class CancelWatch:
    """Asks again and again whether requests were cancelled, in a thread of its own, until they have ended.

    Each question is a round trip from the model's process to tritonserver, for which a model would wait at each step.
    """

    def __init__(self) -> None:
        """Starts the thread, which waits while there are no requests."""
        self._requests: queue.SimpleQueue[Ask | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="midtoken-cancels", daemon=True)
        self._thread.start()

    def add(self, request: Ask) -> None:
        """Asks for a request until the answer is False."""
        self._requests.put(request)

    def close(self) -> None:
        """Stops the thread."""
        self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            if _ask(request):
                self._requests.put(request)
            time.sleep(_PAUSE_S)


def _ask(request: Ask) -> bool:
    try:
        return request()
    except Exception as error:  # the other requests must still be asked for
        _log.error("cannot tell whether a request was cancelled: %s", describe_failure(error))
        return False


def read_inputs(request: Any, get_tensor: Callable[[Any, str], Any], types: FieldTypes) -> dict[str, Array]:
    """The arrays of the inputs in `types` that a request has which Triton passes to a model.

    `get_tensor` is Triton's `get_input_tensor_by_name`. Raises InvalidRequestError for a JSON field that is not an
    input: Triton turns such fields of an HTTP request into parameters.
    """
    try:
        parameters: dict[str, Any] = json.loads(request.parameters() or "{}")
    except ValueError:  # bytes that are not UTF-8, and the JSON that Triton writes for them
        raise InvalidRequestError("the names and values of the request's fields must be UTF-8") from None
    check_known(parameters, types)
    if parameters:
        raise InvalidRequestError(f"{next(iter(parameters))} is a parameter of the request; give it as an input")
    tensors = {name: get_tensor(request, name) for name in types}
    return {name: tensor.as_numpy() for name, tensor in tensors.items() if tensor is not None}
