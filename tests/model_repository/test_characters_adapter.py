"""The characters adapter between a fake Triton and a scripted model."""

import importlib.util
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from inference.characters.service import CharacterService
from inference.characters.token_string import PassWatch
from inference.config import EngineConfig, config_from_strings
from inference.protocol import characters
from inference.protocol.arrays import HEARTBEAT, HEARTBEAT_ANSWER_TYPES, HEARTBEAT_TYPES, Array, heartbeat_from_arrays
from inference.protocol.characters import Ask, CharacterRequest, Generated, Surprisals
from inference.serving.triton_installation import IMPORT_ROOT
from midtoken.installed import find_model_repository
from tests.support.character_fakes import ScriptedCharacterModel, build_scripted_service
from tests.support.fakes import FakeRequest, FakeTriton

_FOLDER = find_model_repository() / "characters"
_PARAMETERS = dict(
    re.findall(
        r'parameters \{ key: "(\w+)", value \{ string_value: "(.*)" \} \}', (_FOLDER / "config.pbtxt").read_text()
    )
)


class _Loader:
    """Loads a scripted model, and records the settings."""

    def __init__(self) -> None:
        self.configs: list[EngineConfig] = []

    def __call__(self, config: EngineConfig, _watch: PassWatch) -> CharacterService:
        self.configs.append(config)
        return build_scripted_service(ScriptedCharacterModel())


class _EndlessService:
    """Makes forward passes until the worker stops it."""

    def __init__(self, watch: PassWatch) -> None:
        self.has_passed = threading.Event()
        self._watch = watch

    def answer(self, request: CharacterRequest) -> Generated:
        while request.text:
            self._watch.begin_pass()
            time.sleep(0.001)
            self._watch.end_pass()
            self.has_passed.set()
        return Generated(b"")


@pytest.fixture(autouse=True)
def triton(monkeypatch: pytest.MonkeyPatch) -> FakeTriton:
    fake = FakeTriton()
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)  # exists only inside Triton's stub
    return fake


MakeModel = Callable[..., Any]


@pytest.fixture
def make_model() -> Iterator[MakeModel]:
    """A function that returns an adapter with the given loader."""
    models = []

    def make(load: Callable[[EngineConfig, PassWatch], Any] | None = None) -> Any:
        spec = importlib.util.spec_from_file_location("characters_model", _FOLDER / "1" / "model.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        models.append(module.TritonPythonModel(load or _Loader()))
        parameters = {name: {"string_value": value} for name, value in (_PARAMETERS | {"model_dir": "m"}).items()}
        models[-1].initialize({"model_config": json.dumps({"parameters": parameters})})
        return models[-1]

    yield make
    for model in models:
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


def test_a_request_gets_one_answer(make_model: MakeModel) -> None:
    response = _respond(make_model(loader := _Loader()), _request(CharacterRequest(b"\x01\x03", ask=Ask.SURPRISAL)))
    assert characters.answer_from_arrays(response.arrays) == Surprisals((1.0, 3.0), 2.0)
    assert loader.configs == [EngineConfig(Path("m"))]


def test_bad_input_does_not_load_the_model(make_model: MakeModel) -> None:
    response = _respond(make_model(loader := _Loader()), FakeRequest({}))
    assert response.error == ("invalid request: text is missing: what is asked about", "INVALID_ARG")
    assert loader.configs == []


@pytest.mark.parametrize(
    ("context", "error"),
    [
        (b"refuse", ("invalid request: the context is refused by the script", "INVALID_ARG")),
        (b"raise", ("the server failed on this request (RuntimeError); its log says where", "INTERNAL")),
    ],
)
def test_a_model_that_raises_makes_one_error(context: bytes, error: tuple[str, str], make_model: MakeModel) -> None:
    assert _respond(make_model(), _request(CharacterRequest(b"a", context))).error == error


def test_an_error_while_a_request_is_read_is_logged_without_its_text(triton: FakeTriton, make_model: MakeModel) -> None:
    def fail() -> str:
        raise RuntimeError("secret")

    request = FakeRequest(_text())
    request.parameters = fail  # type: ignore[method-assign]
    response = _respond(make_model(), request)
    assert response.error == ("the server failed on this request (RuntimeError); its log says where", "INTERNAL")
    assert "RuntimeError" in triton.log
    assert "secret" not in triton.log


def test_a_request_whose_parameters_are_not_json_is_invalid(triton: FakeTriton, make_model: MakeModel) -> None:
    request = FakeRequest(_text())
    request.parameters = lambda: "secret is no JSON"  # type: ignore[method-assign]
    message, code = _respond(make_model(), request).error
    assert message == "invalid request: the names and values of the request's fields must be UTF-8"
    assert code == "INVALID_ARG"
    assert not triton.log.count("secret")


def test_one_bad_request_does_not_affect_the_others(make_model: MakeModel) -> None:
    bad, good = FakeRequest({}), _request(CharacterRequest(b"ab", ask=Ask.GREEDY))
    make_model().execute([bad, good])
    assert _wait_for_response(bad).error
    assert characters.answer_from_arrays(_wait_for_response(good).arrays) == Generated(b"ba")


def test_a_running_request_that_is_cancelled_ends_with_an_error(make_model: MakeModel) -> None:
    model = make_model(lambda _, watch: _EndlessService(watch))
    request = FakeRequest(_text())
    model.execute([request])
    request.sender.cancelled = True
    assert _wait_for_response(request).error == ("the request was cancelled", "INTERNAL")


def test_the_heartbeat_is_answered_at_once_while_a_request_runs(make_model: MakeModel) -> None:
    model = make_model(lambda _, watch: _EndlessService(watch))
    model.execute([running := FakeRequest(_text())])
    model.execute([request := _heartbeat()])
    [response] = request.sender.responses
    assert heartbeat_from_arrays(response.arrays) >= 0
    assert response.flags == FakeTriton.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    assert not running.sender.responses


def test_the_heartbeat_of_an_idle_model_is_zero_and_does_not_load_it(make_model: MakeModel) -> None:
    response = _respond(make_model(loader := _Loader()), _heartbeat())
    assert heartbeat_from_arrays(response.arrays) == 0
    assert loader.configs == []


def test_a_heartbeat_that_is_not_asked_for_changes_nothing(make_model: MakeModel) -> None:
    request = FakeRequest(_text() | {"ask": np.array([b"greedy"], np.object_), HEARTBEAT: np.array([False])})
    assert characters.answer_from_arrays(_respond(make_model(), request).arrays) == Generated(b"a")


def test_too_many_requests_are_refused(make_model: MakeModel) -> None:
    model = make_model(lambda _, watch: _EndlessService(watch))
    requests = [FakeRequest(_text()) for _ in range(70)]
    model.execute(requests)
    error = _wait_for_response(requests[-1]).error
    assert error == ("overloaded: 64 requests wait already; try again in a moment", "UNAVAILABLE")


def test_finalize_ends_all_requests(make_model: MakeModel) -> None:
    model = make_model(lambda _, watch: _EndlessService(watch))
    requests = [FakeRequest(_text()) for _ in range(2)]
    model.execute(requests)
    model.finalize()
    assert [_wait_for_response(each).error for each in requests] == [("the server is shutting down", "INTERNAL")] * 2


def test_an_unknown_json_field_is_refused(make_model: MakeModel) -> None:
    response = _respond(make_model(), FakeRequest(_text(), parameters={"max_byte": 3}))
    assert response.error[0].startswith("invalid request: unknown field 'max_byte'; known are text, context, ask")


def test_the_configuration_has_the_tensors_of_the_protocol() -> None:
    inputs, outputs = (_FOLDER / "config.pbtxt").read_text().split("output [")
    row = r'name: "(\w+)", data_type: TYPE_(\w+), dims: \[ (-?\d+) \](, optional: true)? \}'
    kinds = {"BYTES": "STRING"}
    assert re.findall(row, inputs) == [
        (name, kinds.get(kind, kind), "1", "" if name == "text" else ", optional: true")
        for name, (kind, _) in (characters.REQUEST_TYPES | HEARTBEAT_TYPES).items()
    ]
    assert [name_and_kind[:2] for name_and_kind in re.findall(row, outputs)] == [
        (name, kinds.get(kind, kind)) for name, (kind, _) in (HEARTBEAT_ANSWER_TYPES | characters.ANSWER_TYPES).items()
    ]


def test_the_configuration_has_the_default_settings() -> None:
    assert config_from_strings(_PARAMETERS | {"model_dir": "m"}) == EngineConfig(Path("m"))


def test_torch_is_not_imported_before_the_first_request() -> None:
    parameters = {name: {"string_value": value} for name, value in (_PARAMETERS | {"model_dir": "m"}).items()}
    script = f"""
import runpy, sys, unittest.mock
sys.modules["triton_python_backend_utils"] = unittest.mock.MagicMock()
model = runpy.run_path({str(_FOLDER / "1" / "model.py")!r})["TritonPythonModel"]()
model.initialize({{"model_config": {json.dumps(json.dumps({"parameters": parameters}))}}})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=IMPORT_ROOT, check=True, timeout=60)
