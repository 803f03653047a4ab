"""The completion adapter between a fake Triton and a scripted engine."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError
from inference.protocol import completion_arrays
from inference.protocol.arrays import (
    HEARTBEAT,
    HEARTBEAT_ANSWER,
    Array,
    heartbeat_from_arrays,
)
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from inference.protocol.completion_arrays import Description, description_from_arrays
from midtoken.installed import DEFAULT_MODEL_LANGUAGES, find_default_model
from tests.support.adapters import load_adapter
from tests.support.fakes import ChunkSink, FakeRequest, FakeTriton
from tests.support.servers import wait_until

_LAST = CompletionChunk("x", finish_reason=FinishReason.END, stats=CompletionStats(num_tokens=1, num_context_tokens=3))


def _make_model(act: Callable[[CompletionRequest, ChunkSink], None], runs_as: str = "") -> Any:
    """The adapter with an engine that calls the test's function for each request, at once."""
    closed = threading.Event()
    engine = SimpleNamespace(
        runs_as=runs_as,
        problem="gone" * bool(runs_as),
        submit=act,
        measure_heartbeat_ms=lambda: 12.5,
        closed=closed,
        close=closed.set,
    )
    return load_adapter("completion", lambda _: engine)


def _execute(act: Callable[[CompletionRequest, ChunkSink], None], request: FakeRequest) -> list[Any]:
    """Runs the adapter on one request. Returns the responses; their flags say which is FINAL."""
    model = _make_model(act)
    model.execute([request])
    model.finalize()  # writes the metrics
    return request.sender.responses


def _prefix(text: bytes = b"a") -> dict[str, Array]:
    return {"prefix": np.array([text], np.object_)}


def test_chunks_become_responses_the_last_is_final_and_nothing_is_sent_after_it(triton: FakeTriton) -> None:
    def act(_: CompletionRequest, sink: ChunkSink) -> None:
        for chunk in (CompletionChunk("first"), _LAST, CompletionChunk("late")):
            sink.send(chunk)
        sink.fail(MidtokenError("late"))
        raise RuntimeError("late")

    responses = _execute(act, FakeRequest(_prefix()))
    assert [completion_arrays.chunk_from_arrays(response.arrays) for response in responses] == [
        CompletionChunk("first"),
        _LAST,
    ]
    assert [response.flags for response in responses] == [0, triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL]


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (InvalidRequestError("secret"), "invalid request: secret", "INVALID_ARG"),
        (OverloadedError("no"), "overloaded: no", "UNAVAILABLE"),
        (MidtokenError("no"), "no", "INTERNAL"),
        (RuntimeError("secret"), "the server failed on this request (RuntimeError); its log says where", "INTERNAL"),
    ],
)
def test_an_engine_that_raises_ends_the_stream_with_one_error_whose_text_is_not_in_the_log(
    triton: FakeTriton, error: Exception, text: str, code: str
) -> None:
    def act(_: CompletionRequest, __: ChunkSink) -> None:
        raise error

    (response,) = _execute(act, FakeRequest(_prefix()))
    assert (response.error, response.flags) == ((text, code), triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    assert ("RuntimeError" in triton.log) == isinstance(error, RuntimeError)
    assert "secret" not in triton.log


@pytest.mark.parametrize(
    ("prefix", "parameters", "message"),
    [
        (b"\xff", b"", "prefix is not UTF-8"),
        (b"a", b'{"max_token": 3}', "unknown field 'max_token'; known are prefix, suffix, "),
        (b"a", b'{"seed": 3}', "seed is a parameter of the request; send it as an input"),
        (b"a", b'{"\xff": 3}', "the names and values of the request's fields must be UTF-8"),
    ],
)
def test_bad_input_never_reaches_the_engine(triton: FakeTriton, prefix: bytes, parameters: bytes, message: str) -> None:
    seen: list[CompletionRequest] = []
    request = FakeRequest(_prefix(prefix))
    request.raw_parameters = parameters or request.raw_parameters
    (response,) = _execute(lambda request, _: seen.append(request), request)
    text, code = response.error
    assert (text.startswith(f"invalid request: {message}"), code, seen) == (True, "INVALID_ARG", [])
    assert triton.metrics["midtoken_requests_total", "invalid"] == [1]
    assert "failed" not in triton.log


def _heartbeat(asks: bool = True) -> FakeRequest:
    return FakeRequest({**_prefix(b""), HEARTBEAT: np.array([asks])})


def test_a_heartbeat_is_answered_while_a_request_runs_and_neither_counted_nor_given_to_the_engine(
    triton: FakeTriton,
) -> None:
    reached: list[CompletionRequest] = []
    model = _make_model(lambda request, _: reached.append(request))  # no request ends
    heartbeat = _heartbeat()
    model.execute([_heartbeat(asks=False), heartbeat])
    (response,) = heartbeat.sender.responses
    assert response.flags == triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    assert heartbeat_from_arrays(response.arrays) == 12.5
    assert list(response.arrays) == [HEARTBEAT_ANSWER]
    assert not any(triton.metrics.values())
    assert reached == [CompletionRequest("")]


def test_a_heartbeat_says_which_languages_the_model_knows_and_how_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDTOKEN_MODEL_DIR", str(find_default_model()))
    _make_model(lambda *_: None, "int8").execute([heartbeat := _heartbeat()])
    (response,) = heartbeat.sender.responses
    assert description_from_arrays(response.arrays) == Description(DEFAULT_MODEL_LANGUAGES, "int8", "gone")


def test_one_bad_request_does_not_affect_the_others() -> None:
    good, bad = FakeRequest(_prefix()), FakeRequest({})
    _make_model(lambda _, sink: sink.send(_LAST)).execute([bad, good])
    assert bad.sender.responses[0].error
    assert good.sender.responses[0].arrays["text"] == b"x"


@pytest.mark.parametrize(
    ("end", "counted"),
    [
        (
            lambda sink: sink.send(_LAST),
            {
                ("midtoken_requests_total", "completed"): [1],
                ("midtoken_context_tokens_total", None): [3],
                ("midtoken_first_chunk_ms", None): [0.0],
            },
        ),
        (
            lambda sink: sink.send(CompletionChunk("", finish_reason=FinishReason.CANCELLED, stats=CompletionStats())),
            {("midtoken_requests_total", "cancelled"): [1], ("midtoken_queue_ms", None): [0.0]},
        ),
        (
            lambda sink: sink.fail(InvalidRequestError("no")),
            {("midtoken_requests_total", "invalid"): [1], ("midtoken_first_chunk_ms", None): []},
        ),
    ],
)
def test_the_end_is_counted_by_its_kind(
    triton: FakeTriton, end: Callable[[ChunkSink], None], counted: dict[tuple[str, str | None], list[float]]
) -> None:
    _execute(lambda _, sink: end(sink), FakeRequest(_prefix()))
    assert {key: triton.metrics[key] for key in counted} == counted


def test_two_threads_never_use_a_metric_at_the_same_time(triton: FakeTriton) -> None:
    model = _make_model(lambda _, sink: sink.send(_LAST))
    threads = [threading.Thread(target=model.execute, args=([FakeRequest(_prefix())],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model.finalize()
    assert sum(triton.metrics["midtoken_requests_total", "completed"]) == 4
    assert not triton.MetricFamily.has_overlapped


def test_the_sink_sees_a_cancel_but_triton_is_not_asked_about_a_request_that_has_ended() -> None:
    """Triton itself would read memory that is freed."""
    sinks: list[Any] = []
    requests = [FakeRequest(_prefix()), FakeRequest(_prefix())]
    _make_model(lambda _, sink: sinks.append(sink)).execute(requests)
    sinks[1].send(_LAST)
    assert not sinks[0].is_cancelled()
    for request in requests:
        request.sender.cancelled = True
    wait_until(sinks[0].is_cancelled)
    assert not sinks[1].is_cancelled()
