"""What only the characters adapter does: it loads its model late. The rest is in test_completion_adapter.py."""

import subprocess
import sys

import numpy as np

from inference.characters.token_string import PassWatch
from inference.characters.worker import Answerer
from inference.config import EngineConfig
from inference.errors import OverloadedError
from inference.platforms import IMPORT_ROOT
from inference.protocol import characters
from inference.protocol.arrays import HEARTBEAT, Array, description_from_arrays
from inference.protocol.characters import Ask, CharacterRequest, Surprisals
from tests.support.adapters import RecordedReply, load_adapter
from tests.support.character_fakes import ScriptedCharacterModel, build_scripted_service
from tests.support.servers import wait_until


def test_only_a_question_loads_the_model_and_gets_one_answer() -> None:
    loads = []

    def load(config: EngineConfig, watch: PassWatch) -> Answerer:
        loads.append(str(config.model_dir))
        return build_scripted_service(ScriptedCharacterModel(watch=watch)).answer

    def respond(arrays: dict[str, Array]) -> RecordedReply:
        model.take(lambda: arrays, reply := RecordedReply())
        wait_until(lambda: reply.num_ends == 1)
        return reply

    model = load_adapter("characters", load)
    question = characters.request_to_arrays(CharacterRequest(b"\x01\x03", ask=Ask.SURPRISAL))
    [heartbeat] = respond(question | {HEARTBEAT: np.array([True])}).parts
    assert (heartbeat.keys(), description_from_arrays(heartbeat).heartbeat_ms) == ({"heartbeat_ms"}, 0)
    assert (respond({}).parts, loads) == ([], [])
    [answer] = respond(question).parts
    assert characters.answer_from_arrays(answer) == Surprisals((1.0, 3.0), 2.0)
    assert loads == ["m"]
    model.finalize()


def test_too_many_requests_are_refused_and_the_end_of_the_model_ends_the_others() -> None:
    model = load_adapter(
        "characters", lambda _, watch: build_scripted_service(ScriptedCharacterModel(watch=watch)).answer
    )
    endless, replies = CharacterRequest(b"a", b"endless"), [RecordedReply() for _ in range(70)]
    for reply in replies:
        model.take(lambda: characters.request_to_arrays(endless), reply)
    model.finalize()
    assert str(replies[0].error) == "the server is shutting down"
    assert isinstance(replies[-1].error, OverloadedError)


def test_torch_is_not_imported_before_the_first_request() -> None:
    script = """
import sys
from tests.support.adapters import load_adapter
load_adapter("characters", print)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=IMPORT_ROOT, check=True, timeout=60)
