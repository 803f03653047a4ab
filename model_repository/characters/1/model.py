"""Triton's face of the character-level model: tensors to `inference.protocol.characters` and back, and nothing else.

Decoupled: `execute` hands each request to the worker and returns; the worker's thread sends the answer. Every request
ends in exactly one response, the answer or an error, with the FINAL flag, or its stream would stay open for ever.
"""

import json
import os
import traceback
from collections.abc import Callable, Iterable
from typing import Any  # Triton's objects have no types

import triton_python_backend_utils as pb_utils  # its TritonError, Tensor exist inside methods only

import inference
from inference.characters.watched_reader import PassWatch
from inference.characters.worker import CharacterWorker
from inference.config import EngineConfig, config_from_strings, strings_from_environment
from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError
from inference.protocol import characters
from inference.protocol.arrays import Array
from inference.protocol.error_text import error_to_text
from inference.protocol.heartbeat import HEARTBEAT, HEARTBEAT_TYPES, asks_for_heartbeat, heartbeat_to_arrays


def _load_service(config: EngineConfig, watch: PassWatch) -> Any:
    from inference.characters.loader import load_character_model
    from inference.characters.service import CharacterService  # here, because the loader loads torch

    return CharacterService(load_character_model(config, watch))


class TritonPythonModel:
    """The character-level model. Its settings are config.pbtxt's parameters, overridden by MIDTOKEN_* variables."""

    def __init__(self, load_service: Callable[[EngineConfig, PassWatch], Any] = _load_service) -> None:
        self._load_service = load_service  # makes what answers: an object with `answer(request)`

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the settings. Raises ModelError where they are none."""
        pb_utils.Logger.log_info(f"characters: inference is {inference.__file__}")
        parameters = json.loads(args["model_config"])["parameters"]
        strings = {name: value["string_value"] for name, value in parameters.items()}
        config = config_from_strings(strings | strings_from_environment(os.environ))
        self._worker = CharacterWorker(lambda watch: self._load_service(config, watch))

    def execute(self, requests: Iterable[Any]) -> None:
        """Answers a request for the heartbeat at once, and hands every other one to the worker."""
        for request in requests:
            sink = _Sink(request.get_response_sender())
            try:
                arrays = _read_arrays(request)
                if asks_for_heartbeat(arrays):
                    sink.send_arrays(heartbeat_to_arrays(self._worker.find_ms_without_progress()))
                    continue
                arrays.pop(HEARTBEAT, None)
                self._worker.submit(characters.request_from_arrays(arrays), sink)
            except Exception as error:  # raised from here it would leave the stream open
                sink.fail(error if isinstance(error, MidtokenError) else _log_bug(error))

    def finalize(self) -> None:
        """Fails what waits, stops what runs, and ends the worker's thread."""
        self._worker.close()


class _Sink:
    """Where the worker sends one request's answer."""

    def __init__(self, sender: Any) -> None:
        self._sender, self._is_ended = sender, False

    def send(self, answer: characters.CharacterAnswer) -> None:
        self.send_arrays(characters.answer_to_arrays(answer))

    def send_arrays(self, arrays: dict[str, Array]) -> None:
        self._end(pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in arrays.items()]))

    def fail(self, error: MidtokenError) -> None:
        kinds = pb_utils.TritonError
        codes = {InvalidRequestError: kinds.INVALID_ARG, OverloadedError: kinds.UNAVAILABLE}
        triton_error = pb_utils.TritonError(error_to_text(error), codes.get(type(error), kinds.INTERNAL))
        self._end(pb_utils.InferenceResponse(error=triton_error))

    def is_cancelled(self) -> bool:
        return bool(self._sender.is_cancelled())

    def _end(self, response: Any) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _read_arrays(request: Any) -> dict[str, Any]:
    arrays = dict.fromkeys(json.loads(request.parameters() or "{}"))  # JSON fields that are no inputs: refused later
    for name in characters.REQUEST_TYPES | HEARTBEAT_TYPES:
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        if tensor is not None:
            arrays[name] = tensor.as_numpy()
    return arrays


def _log_bug(error: Exception) -> ServerError:
    place = "".join(traceback.format_tb(error.__traceback__))  # without the message, which may hold the request's text
    pb_utils.Logger.log_error(f"characters: a request failed with {type(error).__name__} at\n{place}")
    return ServerError(f"the server failed on this request ({type(error).__name__}); its log says where")
