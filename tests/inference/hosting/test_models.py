"""Both models of the repository before scripted engines. Behind Triton they are tested in tests/e2e."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from inference.characters.token_string import PassWatch
from inference.characters.worker import Answerer
from inference.config import EngineConfig
from inference.engine.engine import EngineLoad
from inference.engine.job import ChunkSink
from inference.errors import InvalidRequestError, MidtokenError, OverloadedError
from inference.platforms import IMPORT_ROOT
from inference.protocol import characters
from inference.protocol.arrays import CANCEL, HEARTBEAT, Array, chunk_from_arrays, description_from_arrays
from inference.protocol.characters import Ask, CharacterRequest, Surprisals
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, Description, FinishReason
from midtoken.installed import BUNDLED_MODEL_LANGUAGES, find_bundled_model
from tests.support.character_fakes import ScriptedCharacterModel, build_scripted_service
from tests.support.hosted_models import RecordedReply, load_hosted_model
from tests.support.servers import wait_until

_LAST = CompletionChunk("x", finish_reason=FinishReason.END, stats=CompletionStats(num_tokens=1, num_context_tokens=3))


def _make_model(act: Callable[[CompletionRequest, ChunkSink], None], model_dir: Path = Path("m")) -> Any:
    """The model with an engine that calls the test's function for each request, at once."""
    told: dict[str, Any] = {"runs_as": "int8", "problem": "gone", "repository_format": "qwen", "context_tokens": 512}
    told["load"] = EngineLoad(0, 0, {})
    engine = SimpleNamespace(**told, submit=act, heartbeat=SimpleNamespace(measure_ms=lambda: 12.5))
    return load_hosted_model("completion", lambda _: engine, model_dir)


def _take(model: Any, arrays: dict[str, Array] | None = None) -> RecordedReply:
    reply = RecordedReply()
    model.answer(lambda: {"prefix": np.array([b"a"], np.object_), **(arrays or {})}, reply)
    return reply


def test_chunks_become_parts_the_last_is_final_and_noted_and_nothing_is_sent_after_it() -> None:
    def act(_: CompletionRequest, sink: ChunkSink) -> None:
        for chunk in (CompletionChunk("first"), _LAST, CompletionChunk("late")):
            sink.send(chunk)
        sink.fail(MidtokenError("late"))
        raise RuntimeError("late")

    model, noted = _make_model(act), list[Any]()
    model.note_end = lambda _, end, __: noted.append(end)
    reply = _take(model)
    assert [chunk_from_arrays(part) for part in reply.parts] == [CompletionChunk("first"), _LAST]
    assert (reply.num_ends, reply.error, noted) == (1, None, [_LAST])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidRequestError("secret"), "secret"),
        (OverloadedError("no"), "no"),
        (RuntimeError("secret"), "the server failed on this request (RuntimeError); its log says where"),
    ],
)
def test_an_engine_that_raises_ends_the_stream_with_one_error_whose_text_is_not_in_the_log(
    capsys: pytest.CaptureFixture[str], error: Exception, text: str
) -> None:
    def act(_: CompletionRequest, __: ChunkSink) -> None:
        raise error

    reply = _take(_make_model(act))
    assert (str(reply.error), reply.num_ends, reply.parts) == (text, 1, [])
    log = capsys.readouterr().err
    assert ("RuntimeError" in log, "secret" in log) == (isinstance(error, RuntimeError), False)


def test_bad_input_never_reaches_the_engine() -> None:
    seen: list[CompletionRequest] = []
    reply = _take(_make_model(lambda request, _: seen.append(request)), {"prefix": np.array([b"\xff"], np.object_)})
    assert (str(reply.error).startswith("prefix is not UTF-8"), seen) == (True, [])


def test_a_heartbeat_tells_of_the_model_and_is_neither_noted_nor_given_to_the_engine() -> None:
    reached, noted = list[CompletionRequest](), list[Any]()
    model = _make_model(lambda request, _: reached.append(request), find_bundled_model())
    model.note_end = lambda _, end, __: noted.append(end)
    [answer] = _take(model, {HEARTBEAT: np.array([True])}).parts
    description = description_from_arrays(answer)
    assert description == Description(
        BUNDLED_MODEL_LANGUAGES, "int8", "gone", repository_format="qwen", context_tokens=512
    )
    assert (description.heartbeat_ms, "midtoken_requests_total" in description.metrics) == (12.5, True)
    assert (reached, noted) == ([], [])


def test_a_request_is_cancelled_by_its_id_and_the_cancel_itself_is_answered_with_nothing() -> None:
    sinks: list[Any] = []
    model = _make_model(lambda _, sink: sinks.append(sink))
    for name in ("1", "2", ""):
        model.answer(lambda: {"prefix": np.array([b"a"], np.object_)}, RecordedReply(), name)
    cancel = {CANCEL: np.array([b"2"], np.object_)}
    for cancelled in (cancel, {CANCEL: np.array([b""], np.object_)}, {CANCEL: np.array([b"3"], np.object_)}):
        reply = _take(model, cancelled)
        assert (reply.parts, reply.error, reply.num_ends) == ([{}], None, 1)
    assert [sink.is_cancelled() for sink in sinks] == [False, True, False]
    sinks.pop(1).send(_LAST)  # the client reads to this end
    assert _take(model, cancel).error is None


def test_nothing_but_the_end_is_sent_to_a_client_that_has_gone_and_triton_is_not_asked_about_it_then() -> None:
    """Triton itself would write into memory that is freed, or read it."""
    sinks: list[Any] = []
    model = _make_model(lambda _, sink: sinks.append(sink))
    replies = [_take(model), _take(model), _take(model)]
    sinks[1].send(_LAST)
    assert not sinks[0].is_cancelled()
    for reply in replies:
        reply.cancelled = True
    wait_until(lambda: sinks[0].is_cancelled() and sinks[2].is_cancelled())
    assert not sinks[1].is_cancelled()
    sinks[0].send(CompletionChunk("late"))
    sinks[0].send(_LAST)
    sinks[2].fail(MidtokenError("late"))
    assert [(reply.parts, reply.error) for reply in replies[::2]] == [([{}], None), ([{}], None)]


def test_only_a_question_loads_the_model_and_gets_one_answer() -> None:
    loads = []

    def load(config: EngineConfig, watch: PassWatch) -> Answerer:
        loads.append(str(config.model_dir))
        return build_scripted_service(ScriptedCharacterModel(watch=watch)).answer

    def respond(arrays: dict[str, Array]) -> RecordedReply:
        model.answer(lambda: arrays, reply := RecordedReply())
        wait_until(lambda: reply.num_ends == 1)
        return reply

    model = load_hosted_model("characters", load)
    question = characters.request_to_arrays(CharacterRequest(b"\x01\x03", ask=Ask.SURPRISAL))
    [heartbeat] = respond(question | {HEARTBEAT: np.array([True])}).parts
    assert (list(heartbeat), description_from_arrays(heartbeat).heartbeat_ms) == (["heartbeat_ms"], 0)
    assert (respond({}).parts, loads) == ([], [])
    [answer] = respond(question).parts
    assert characters.answer_from_arrays(answer) == Surprisals((1.0, 3.0), 2.0)
    assert loads == ["m"]
    model.finalize()


def test_torch_is_not_imported_before_the_first_request() -> None:
    script = """
import sys
from tests.support.hosted_models import load_hosted_model
load_hosted_model("characters", print)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=IMPORT_ROOT, check=True, timeout=60)
