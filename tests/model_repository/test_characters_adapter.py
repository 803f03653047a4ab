"""The characters model with a stand-in for Triton on one side and a scripted model on the other."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference.characters.service import CharacterService
from inference.config import EngineConfig, config_from_strings
from inference.errors import ModelError
from inference.protocol import characters
from inference.protocol.arrays import Array
from inference.protocol.characters import Ask, CharacterRequest, Generated, Surprisals
from inference.protocol.heartbeat import HEARTBEAT_ANSWER_TYPES, HEARTBEAT_TYPES
from inference.serving.installation import IMPORT_ROOT, find_model_repository
from tests.support.character_fakes import ScriptedCharacterModel
from tests.support.fakes import FakeRequest, FakeTriton

_FOLDER = find_model_repository() / "characters"
_PARAMETERS = dict(
    re.findall(
        r'parameters \{ key: "(\w+)", value \{ string_value: "(.*)" \} \}', (_FOLDER / "config.pbtxt").read_text()
    )
)


class _Loader:
    """Loads a scripted model, or fails so many times before."""

    def __init__(self, num_failures: int = 0) -> None:
        self.configs: list[EngineConfig] = []
        self._num_failures = num_failures

    def __call__(self, config: EngineConfig) -> CharacterService:
        self.configs.append(config)
        if len(self.configs) <= self._num_failures:
            raise ModelError("no weights")
        return CharacterService(ScriptedCharacterModel())


@pytest.fixture(autouse=True)
def triton(monkeypatch: pytest.MonkeyPatch) -> FakeTriton:
    fake = FakeTriton()
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)  # Triton's module, which exists in it only
    return fake


def _make_model(loader: _Loader | None = None) -> Any:
    spec = importlib.util.spec_from_file_location("characters_model", _FOLDER / "1" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel(loader or _Loader())
    parameters = {name: {"string_value": value} for name, value in (_PARAMETERS | {"model_dir": "m"}).items()}
    model.initialize({"model_config": json.dumps({"parameters": parameters})})
    return model


def _request(request: CharacterRequest) -> FakeRequest:
    return FakeRequest(characters.request_to_arrays(request))


def _respond(request: FakeRequest) -> Any:
    (response,) = _make_model().execute([request])
    return response


def _text(text: bytes = b"a") -> dict[str, Array]:
    return {"text": np.array([text], np.object_)}


def test_a_request_has_one_answer() -> None:
    response = _respond(_request(CharacterRequest(b"\x01\x03", ask=Ask.SURPRISAL)))
    assert characters.answer_from_arrays(response.arrays) == Surprisals((1.0, 3.0), 2.0)


def test_the_model_is_loaded_with_the_first_request_and_only_then() -> None:
    model = _make_model(loader := _Loader())
    assert loader.configs == []
    model.execute([FakeRequest(_text()), FakeRequest(_text())])
    assert loader.configs == [EngineConfig(Path("m"))]


def test_bad_input_does_not_load_the_model() -> None:
    (response,) = _make_model(loader := _Loader()).execute([FakeRequest({})])
    assert response.error == ("invalid request: text is missing: what is asked about", "INVALID_ARG")
    assert loader.configs == []


def test_a_model_that_could_not_be_loaded_is_tried_again() -> None:
    model = _make_model(_Loader(num_failures=1))
    first, second = (model.execute([FakeRequest(_text())])[0] for _ in range(2))
    assert (first.error, second.error) == (("no weights", "INTERNAL"), None)


@pytest.mark.parametrize(
    ("context", "error"),
    [
        (b"refuse", ("invalid request: the context is refused by the script", "INVALID_ARG")),
        (b"raise", ("the server failed on this request (RuntimeError); its log says where", "INTERNAL")),
    ],
)
def test_a_model_that_raises_makes_one_error(context: bytes, error: tuple[str, str]) -> None:
    assert _respond(_request(CharacterRequest(b"a", context))).error == error


def test_the_log_holds_no_text_of_a_request(triton: FakeTriton) -> None:
    _respond(_request(CharacterRequest(b"a", b"raise secret")))
    assert "RuntimeError" in triton.log
    assert "secret" not in triton.log


def test_one_bad_request_leaves_the_others_be() -> None:
    requests = [FakeRequest({}), _request(CharacterRequest(b"ab", ask=Ask.GREEDY))]
    bad, good = _make_model().execute(requests)
    assert bad.error
    assert characters.answer_from_arrays(good.arrays) == Generated(b"ba")


def test_a_request_that_was_cancelled_while_it_waited_is_not_answered() -> None:
    request = FakeRequest(_text())
    request.cancelled = True
    assert _respond(request).error == ("the request was cancelled", "INTERNAL")


def test_a_json_field_that_is_no_input_is_refused() -> None:
    response = _respond(FakeRequest(_text(), parameters={"max_byte": 3}))
    assert response.error[0].startswith("invalid request: unknown field 'max_byte'; known are text, context, ask")


def test_the_configuration_names_the_tensors_of_the_wire() -> None:
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


def test_the_configuration_repeats_the_defaults() -> None:
    assert config_from_strings(_PARAMETERS | {"model_dir": "m"}) == EngineConfig(Path("m"))


def test_until_the_first_request_torch_is_not_imported() -> None:
    parameters = {name: {"string_value": value} for name, value in (_PARAMETERS | {"model_dir": "m"}).items()}
    script = f"""
import runpy, sys, unittest.mock
sys.modules["triton_python_backend_utils"] = unittest.mock.MagicMock()
model = runpy.run_path({str(_FOLDER / "1" / "model.py")!r})["TritonPythonModel"]()
model.initialize({{"model_config": {json.dumps(json.dumps({"parameters": parameters}))}}})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=IMPORT_ROOT, check=True, timeout=60)
