"""The characters adapter between a fake Triton and a scripted model."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from inference.characters.token_string import PassWatch
from inference.characters.worker import Answerer
from inference.config import EngineConfig
from inference.protocol import characters
from inference.protocol.arrays import HEARTBEAT, Array, heartbeat_from_arrays
from inference.protocol.characters import Ask, CharacterRequest, Generated, Surprisals
from inference.serving.triton_installation import IMPORT_ROOT
from midtoken.installed import find_model_repository
from tests.support.adapters import build_arguments, load_adapter
from tests.support.character_fakes import ScriptedCharacterModel, build_scripted_service
from tests.support.fakes import FakeRequest, FakeTriton


class _Loader:
    """Loads a scripted model, and records the settings."""

    def __init__(self) -> None:
        self.configs: list[EngineConfig] = []

    def __call__(self, config: EngineConfig, watch: PassWatch) -> Answerer:
        self.configs.append(config)
        return build_scripted_service(ScriptedCharacterModel(watch=watch)).answer


@pytest.fixture
def loader() -> _Loader:
    return _Loader()


@pytest.fixture
def model(loader: _Loader) -> Iterator[Any]:
    model = load_adapter("characters", loader)
    yield model
    model.finalize()


def _request(request: CharacterRequest) -> FakeRequest:
    return FakeRequest(characters.request_to_arrays(request))


def _respond(model: Any, request: FakeRequest) -> SimpleNamespace:
    """Returns the one response, which ends the request."""
    model.execute([request])
    return _wait_for_response(request)


def _wait_for_response(request: FakeRequest) -> SimpleNamespace:
    end = time.monotonic() + 30
    while not request.sender.responses:
        assert time.monotonic() < end, "no response came"
        time.sleep(0.001)
    [response] = request.sender.responses
    assert response.flags == FakeTriton.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    return response


def _text(text: bytes = b"a") -> dict[str, Array]:
    return {"text": np.array([text], np.object_)}


def _heartbeat() -> FakeRequest:
    return FakeRequest(_text(b"") | {HEARTBEAT: np.array([True])})


def _endless() -> FakeRequest:
    return _request(CharacterRequest(b"a", b"endless", Ask.SURPRISAL))


def test_a_request_gets_one_answer(model: Any, loader: _Loader) -> None:
    response = _respond(model, _request(CharacterRequest(b"\x01\x03", ask=Ask.SURPRISAL)))
    assert characters.answer_from_arrays(response.arrays) == Surprisals((1.0, 3.0), 2.0)
    assert loader.configs == [EngineConfig(Path("m"))]


@pytest.mark.parametrize(
    ("arrays", "parameters", "message"),
    [
        ({}, b"{}", "text is missing: what is asked about"),
        (_text(), b"\xff secret", "the names and values of the request's fields must be UTF-8"),
        (_text(), b'{"max_byte": 3}', "unknown field 'max_byte'; known are text, context, ask"),
    ],
)
def test_bad_input_is_refused_and_neither_loads_the_model_nor_gets_into_the_log(
    triton: FakeTriton, model: Any, loader: _Loader, arrays: dict[str, Array], parameters: bytes, message: str
) -> None:
    request = FakeRequest(arrays)
    request.raw_parameters = parameters
    text, code = _respond(model, request).error
    assert (text.startswith(f"invalid request: {message}"), code) == (True, "INVALID_ARG")
    assert loader.configs == []
    assert "secret" not in triton.log


@pytest.mark.parametrize(
    ("context", "error"),
    [
        (b"refuse", ("invalid request: the context is refused by the script", "INVALID_ARG")),
        (b"raise", ("the server failed on this request (RuntimeError); its log says where", "INTERNAL")),
    ],
)
def test_a_model_that_raises_makes_one_error(context: bytes, error: tuple[str, str], model: Any) -> None:
    assert _respond(model, _request(CharacterRequest(b"a", context))).error == error


def test_an_error_while_a_request_is_read_is_logged_without_its_text(triton: FakeTriton, model: Any) -> None:
    def fail() -> str:
        raise RuntimeError("secret")

    request = FakeRequest(_text())
    request.parameters = fail  # type: ignore[method-assign]
    response = _respond(model, request)
    assert response.error == ("the server failed on this request (RuntimeError); its log says where", "INTERNAL")
    assert "RuntimeError" in triton.log
    assert "secret" not in triton.log


def test_one_bad_request_does_not_affect_the_others(model: Any) -> None:
    bad, good = FakeRequest({}), _request(CharacterRequest(b"ab", ask=Ask.GREEDY))
    model.execute([bad, good])
    assert _wait_for_response(bad).error
    assert characters.answer_from_arrays(_wait_for_response(good).arrays) == Generated(b"ba")


def test_a_running_request_that_is_cancelled_ends_with_an_error(model: Any) -> None:
    model.execute([request := _endless()])
    request.sender.cancelled = True
    assert _wait_for_response(request).error == ("the request was cancelled", "INTERNAL")


def test_the_heartbeat_is_answered_at_once_while_a_request_runs(model: Any) -> None:
    model.execute([running := _endless(), request := _heartbeat()])
    [response] = request.sender.responses
    assert heartbeat_from_arrays(response.arrays) >= 0
    assert response.flags == FakeTriton.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    assert not running.sender.responses


def test_the_heartbeat_of_an_idle_model_is_zero_and_does_not_load_it(model: Any, loader: _Loader) -> None:
    assert heartbeat_from_arrays(_respond(model, _heartbeat()).arrays) == 0
    assert loader.configs == []


def test_a_heartbeat_that_is_not_asked_for_changes_nothing(model: Any) -> None:
    request = FakeRequest(_text() | {"ask": np.array([b"greedy"], np.object_), HEARTBEAT: np.array([False])})
    assert characters.answer_from_arrays(_respond(model, request).arrays) == Generated(b"a")


def test_too_many_requests_are_refused(model: Any) -> None:
    model.execute(requests := [_endless() for _ in range(70)])
    error = _wait_for_response(requests[-1]).error
    assert error == ("overloaded: 64 requests wait already; try again in a moment", "UNAVAILABLE")


def test_finalize_ends_all_requests(model: Any) -> None:
    model.execute(requests := [_endless() for _ in range(2)])
    model.finalize()
    assert [_wait_for_response(each).error for each in requests] == [("the server is shutting down", "INTERNAL")] * 2


def test_torch_is_not_imported_before_the_first_request() -> None:
    script = f"""
import runpy, sys, unittest.mock
sys.modules["triton_python_backend_utils"] = unittest.mock.MagicMock()
model = runpy.run_path({str(find_model_repository() / "characters" / "1" / "model.py")!r})["TritonPythonModel"]()
model.initialize({build_arguments("characters")!r})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=IMPORT_ROOT, check=True, timeout=60)
