"""The Triton model `characters`, which converts between tensors and `inference.protocol.characters`.

It is decoupled: `execute` passes each request to the worker and returns; the worker's thread sends the answer. Every
request ends in exactly one response with the FINAL flag, the answer or an error. Without it, the stream would never
close.
"""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any  # Triton's objects have no types

import triton_python_backend_utils as pb_utils  # TritonError and Tensor exist only inside methods

import inference
from inference.characters.token_string import PassWatch
from inference.characters.worker import Answerer, CharacterWorker
from inference.config import EngineConfig, config_from_strings, strings_from_environment
from inference.errors import MidtokenError, ModelError, to_public_error
from inference.protocol import characters
from inference.protocol.arrays import (
    HEARTBEAT,
    HEARTBEAT_TYPES,
    Array,
    asks_for_heartbeat,
    error_to_response,
    heartbeat_to_arrays,
    read_inputs,
)

_INPUTS = characters.REQUEST_TYPES | HEARTBEAT_TYPES


def _load(config: EngineConfig, watch: PassWatch) -> Answerer:
    if config.engine_url:
        raise ModelError("the character-level model needs the weights, and they are on another server (--engine)")
    from inference.characters.assembly import load_character_model
    from inference.characters.service import CharacterService  # here, because the loader loads the runners

    return CharacterService(load_character_model(config, watch), config.memory_mib * 2**20).answer


class TritonPythonModel:
    """The character-level model. Its settings are config.pbtxt's parameters, overridden by MIDTOKEN_* variables."""

    def __init__(self, load: Callable[[EngineConfig, PassWatch], Answerer] = _load) -> None:
        self._load = load

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the settings. Raises ModelError if one is missing or invalid."""
        pb_utils.Logger.log_info(f"characters: inference is {inference.__file__}")
        parameters = json.loads(args["model_config"])["parameters"]
        strings = {name: value["string_value"] for name, value in parameters.items()}
        config = config_from_strings(strings | strings_from_environment(os.environ))
        self._worker = CharacterWorker(lambda watch: self._load(config, watch))

    def execute(self, requests: Iterable[Any]) -> None:
        """Answers heartbeat requests at once, and passes all others to the worker."""
        for request in requests:
            sink = _Sink(request.get_response_sender())
            try:
                self._take(request, sink)
            except Exception as error:  # an exception raised here would leave the stream open
                sink.fail(to_public_error(error, pb_utils.Logger.log_error))

    def _take(self, request: Any, sink: "_Sink") -> None:
        arrays = read_inputs(request, pb_utils.get_input_tensor_by_name, _INPUTS)
        if asks_for_heartbeat(arrays):
            sink.send_arrays(heartbeat_to_arrays(self._worker.measure_heartbeat_ms()))
            return
        arrays.pop(HEARTBEAT, None)
        self._worker.submit(characters.request_from_arrays(arrays), sink)

    def finalize(self) -> None:
        """Fails the waiting requests, stops the running one, and stops the worker's thread."""
        self._worker.close()


class _Sink:
    """Sends one request's answer to Triton. Calls after the first are ignored."""

    def __init__(self, sender: Any) -> None:
        self._sender, self._is_ended = sender, False

    def send(self, answer: characters.CharacterAnswer) -> None:
        self.send_arrays(characters.answer_to_arrays(answer))

    def send_arrays(self, arrays: dict[str, Array]) -> None:
        self._end(pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in arrays.items()]))

    def fail(self, error: MidtokenError) -> None:
        text, code = error_to_response(error)
        triton_error = pb_utils.TritonError(text, getattr(pb_utils.TritonError, code))
        self._end(pb_utils.InferenceResponse(error=triton_error))

    def is_cancelled(self) -> bool:
        return bool(self._sender.is_cancelled())

    def _end(self, response: Any) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
