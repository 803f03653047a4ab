import json
from pathlib import Path

from inference.errors import InvalidRequestError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from inference.protocol.finished_request import FinishedRequest, RequestLog
from inference.protocol.traceparent import find_request_id, new_traceparent

_SECRET = "hunter2"


def test_the_log_has_one_line_for_each_request_and_none_of_its_text(tmp_path: Path) -> None:
    log, traceparent = RequestLog(tmp_path / "log"), new_traceparent()
    request = CompletionRequest(
        _SECRET, _SECRET, stop=(_SECRET,), tenant=_SECRET, document=_SECRET, path=_SECRET, traceparent=traceparent
    )
    stats = CompletionStats(queue_ms=1.234, first_token_ms=2, num_tokens=3, num_context_tokens=5, num_read_tokens=1)
    log.write(FinishedRequest.of(request, CompletionChunk(_SECRET, finish_reason=FinishReason.END, stats=stats), 0.5))
    (tmp_path / "log").rename(tmp_path / "log.1")
    log.write(FinishedRequest.of(None, InvalidRequestError(_SECRET), 0.1))
    log.close()

    first, second = (json.loads((tmp_path / name).read_text()) for name in ("log.1", "log"))
    assert _SECRET not in f"{first}{second}"
    assert first.pop("time").startswith("20")
    assert len(first.pop("tenant")) == 12
    assert first == {
        "request_id": find_request_id(traceparent), "outcome": "completed", "reason": "end", "queue_ms": 1.23,
        "first_token_ms": 2, "total_ms": 500.0, "prompt_tokens": 5, "cached_tokens": 4, "generated_tokens": 3,
    }  # fmt: skip
    assert (second["outcome"], second["reason"], second["request_id"]) == ("invalid", "InvalidRequestError", "")


def test_a_request_keeps_an_id_that_is_a_uuid_and_gets_a_new_one_for_any_other() -> None:
    given = "0AF76519-16CD-43DD-8448-EB211C80319C"
    assert find_request_id(new_traceparent(given)) == given.lower().replace("-", "")
    for other in ("", "0" * 32, "line\nbreak", "a" * 33):
        assert len(find_request_id(new_traceparent(other))) == 32
    assert find_request_id(new_traceparent()) != find_request_id(new_traceparent())
