"""What only the characters adapter does: it loads its model late. The rest is in test_completion_adapter.py."""

import subprocess
import sys

import numpy as np

from inference.characters.token_string import PassWatch
from inference.characters.worker import Answerer
from inference.config import EngineConfig
from inference.protocol import characters
from inference.protocol.arrays import HEARTBEAT, Array, heartbeat_from_arrays
from inference.protocol.characters import Ask, CharacterRequest, Surprisals
from inference.serving.triton_installation import IMPORT_ROOT
from midtoken.installed import find_model_repository
from tests.support.adapters import load_adapter
from tests.support.character_fakes import ScriptedCharacterModel, build_scripted_service
from tests.support.fakes import FakeRequest
from tests.support.servers import wait_until


def test_only_a_question_loads_the_model_and_gets_one_answer() -> None:
    loads = []

    def load(config: EngineConfig, watch: PassWatch) -> Answerer:
        loads.append(str(config.model_dir))
        return build_scripted_service(ScriptedCharacterModel(watch=watch)).answer

    def respond(arrays: dict[str, Array]) -> dict[str, Array]:
        model.execute([request := FakeRequest(arrays)])
        wait_until(lambda: bool(request.sender.responses))
        [response] = request.sender.responses
        assert response.flags
        return response.arrays  # type: ignore[no-any-return]

    model = load_adapter("characters", load)
    question = characters.request_to_arrays(CharacterRequest(b"\x01\x03", ask=Ask.SURPRISAL))
    assert heartbeat_from_arrays(respond(question | {HEARTBEAT: np.array([True])})) == 0
    assert (respond({}), loads) == ({}, [])
    assert characters.answer_from_arrays(respond(question)) == Surprisals((1.0, 3.0), 2.0)
    assert loads == ["m"]
    model.finalize()


def test_too_many_requests_are_refused_and_finalize_ends_the_others() -> None:
    model = load_adapter(
        "characters", lambda _, watch: build_scripted_service(ScriptedCharacterModel(watch=watch)).answer
    )
    endless = characters.request_to_arrays(CharacterRequest(b"a", b"endless"))
    model.execute(requests := [FakeRequest(endless) for _ in range(70)])
    model.finalize()
    first, *_, last = [request.sender.responses[0].error for request in requests]
    assert first == ("the server is shutting down", "INTERNAL")
    assert last == ("overloaded: 64 requests wait already; try again in a moment", "UNAVAILABLE")


def test_torch_is_not_imported_before_the_first_request() -> None:
    script = f"""
import os, runpy, sys, unittest.mock
sys.modules["triton_python_backend_utils"] = unittest.mock.MagicMock()
model = runpy.run_path({str(find_model_repository() / "characters" / "1" / "model.py")!r})["TritonPythonModel"]()
os.environ["MIDTOKEN_MODEL_DIR"] = "m"
model.initialize({{}})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=IMPORT_ROOT, check=True, timeout=60)
