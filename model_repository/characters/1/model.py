"""Triton's face of the character-level model: tensors to `inference.protocol.characters` and back, and nothing else.

Not decoupled: each request has one response, the answer or one error; no exception leaves `execute`.
"""

import json
import os
import traceback
from collections.abc import Callable, Iterable
from typing import Any  # Triton's objects have no types

import triton_python_backend_utils as pb_utils  # its TritonError, Tensor exist inside methods only

import inference
from inference.config import EngineConfig, config_from_strings, strings_from_environment
from inference.errors import InvalidRequestError, MidtokenError, ServerError
from inference.protocol import characters
from inference.protocol.error_text import error_to_text


def _load_service(config: EngineConfig) -> Any:
    from inference.characters.loader import load_character_model
    from inference.characters.service import CharacterService  # here, because the loader loads torch

    return CharacterService(load_character_model(config))


class TritonPythonModel:
    """The character-level model. Its settings are config.pbtxt's parameters, overridden by MIDTOKEN_* variables."""

    def __init__(self, load_service: Callable[[EngineConfig], Any] = _load_service) -> None:
        self._load_service = load_service  # makes what answers: an object with `answer(request)`
        self._service: Any = None  # until the first request

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the settings. Raises ModelError where they are none."""
        pb_utils.Logger.log_info(f"characters: inference is {inference.__file__}")
        parameters = json.loads(args["model_config"])["parameters"]
        strings = {name: value["string_value"] for name, value in parameters.items()}
        self._config = config_from_strings(strings | strings_from_environment(os.environ))

    def execute(self, requests: Iterable[Any]) -> list[Any]:
        """Answers one request after the other."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            if request.is_cancelled():  # while it waited for those before it
                raise ServerError("the request was cancelled")
            arrays = characters.answer_to_arrays(self._answer(_read_request(request)))
            return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in arrays.items()])
        except Exception as error:  # what left here would fail the requests beside this one too
            return _refuse(error if isinstance(error, MidtokenError) else _log_bug(error))

    def _answer(self, request: characters.CharacterRequest) -> characters.CharacterAnswer:
        if self._service is None:
            self._service = self._load_service(self._config)
        answer: characters.CharacterAnswer = self._service.answer(request)
        return answer


def _read_request(request: Any) -> characters.CharacterRequest:
    arrays = dict.fromkeys(json.loads(request.parameters() or "{}"))  # JSON fields that are no inputs: refused below
    for name in characters.REQUEST_TYPES:
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        if tensor is not None:
            arrays[name] = tensor.as_numpy()
    return characters.request_from_arrays(arrays)


def _refuse(error: MidtokenError) -> Any:
    kinds = pb_utils.TritonError
    code = kinds.INVALID_ARG if isinstance(error, InvalidRequestError) else kinds.INTERNAL
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(error_to_text(error), code))


def _log_bug(error: Exception) -> ServerError:
    place = "".join(traceback.format_tb(error.__traceback__))  # without the message, which may hold the request's text
    pb_utils.Logger.log_error(f"characters: a request failed with {type(error).__name__} at\n{place}")
    return ServerError(f"the server failed on this request ({type(error).__name__}); its log says where")
