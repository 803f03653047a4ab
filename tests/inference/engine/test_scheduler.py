from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.scheduler import Scheduler
from inference.errors import InvalidRequestError
from inference.protocol.completion import CompletionRequest, Priority


@dataclass(eq=False)
class _Request:
    tenant: str = "a"
    document: str = ""
    priority: Priority = Priority.INTERACTIVE
    num_steps: int = 0
    is_begun: bool = False
    submitted_at: float = 0.0
    num_to_prefill: int = 0
    num_sequences: int = 1
    num_tokens: int = 1

    @property
    def request(self) -> CompletionRequest:
        return CompletionRequest(
            "", tenant=self.tenant, document=self.document, priority=self.priority, num_candidates=self.num_sequences
        )


def _fill(*requests: _Request) -> Any:  # a Scheduler, whose jobs are our requests
    scheduler: Any = Scheduler(max_sequences=4, max_tokens=20, clock=lambda: 0.0)
    for request in requests:
        scheduler.add(request)
    return scheduler


_LONG_WAIT = -0.7  # submitted then, it has waited for long
_PREFILLS = _Request(document="x", num_to_prefill=500)


@pytest.mark.parametrize(
    ("arrived", "order"),
    [
        pytest.param([_Request(is_begun=True), _Request()], [0, 1], id="a begun one before a new one"),
        pytest.param([_Request(num_steps=257, is_begun=True), _Request()], [1, 0], id="one with many steps gives way"),
        pytest.param(
            [_Request(priority=Priority.PREFETCH, is_begun=True), _Request(num_steps=5000)],
            [1, 0],
            id="a person before any prefetch",
        ),
        pytest.param([_Request(), _Request("b")], [0, 1], id="without documents the oldest first"),
        pytest.param(
            [_Request(document="x"), _Request("b", document="y")], [1, 0], id="if it can be superseded the newest first"
        ),
        pytest.param(
            [_Request("b", document="x", num_to_prefill=3), _PREFILLS], [0, 1], id="a long prefill after those ready"
        ),
        pytest.param(
            [_Request("b", document="x"), _Request(document="x", num_to_prefill=500, is_begun=True)],
            [0, 1],
            id="even after it has begun",
        ),
        pytest.param(
            [_Request(document="x", num_to_prefill=500, submitted_at=_LONG_WAIT), _Request("b", document="x")],
            [0, 1],
            id="but not after a long wait",
        ),
        pytest.param([_Request(num_to_prefill=500), _Request()], [0, 1], id="and not if it names no document"),
        pytest.param(
            [
                _Request(document="x", submitted_at=10 * _LONG_WAIT),
                _Request("b", document="x", submitted_at=_LONG_WAIT),
                _Request("c", document="x"),
            ],
            [0, 1, 2],
            id="after a long wait the oldest first",
        ),
    ],
)
def test_the_order_follows_the_rules(arrived: list[_Request], order: list[int]) -> None:
    assert _fill(*arrived).sort() == [arrived[index] for index in order]


_AHEAD = _Request(document="x", priority=Priority.PREFETCH)


@pytest.mark.parametrize(
    ("older", "newer", "is_superseded"),
    [
        (_Request(document="x"), _Request(document="x"), True),
        (_Request(document="x"), _Request(document="y"), False),
        (_Request(document="x"), _Request("b", document="x"), False),
        (_Request(), _Request(), False),
        (_AHEAD, _Request(document="x"), True),
        (_AHEAD, _AHEAD, True),
        (_Request(document="x"), _AHEAD, False),
    ],
)
def test_a_request_supersedes_an_older_one_of_its_document_and_a_prefetch_supersedes_prefetches_only(
    older: _Request, newer: _Request, is_superseded: bool
) -> None:
    assert _fill(_Request("b", document="y"), older).add(newer) == [older] * is_superseded


@given(requests=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 20)), max_size=8))
def test_what_is_begun_stays_within_the_room(requests: list[tuple[int, int]]) -> None:
    scheduler = _fill(*(_Request(num_sequences=sequences, num_tokens=tokens) for sequences, tokens in requests))
    for request in scheduler:
        request.is_begun = scheduler.has_room(request)

    begun = [request for request in scheduler if request.is_begun]
    assert sum(request.num_sequences for request in begun) <= 4
    assert sum(request.num_tokens for request in begun) <= 20
    assert bool(begun) == bool(requests)


@pytest.mark.parametrize("request_", [_Request(num_sequences=5), _Request(num_tokens=21)])
def test_a_request_that_could_never_run_is_refused(request_: _Request) -> None:
    with pytest.raises(InvalidRequestError, match=r"sequences and room for [0-9]+ tokens; this server has 4"):
        _fill().check_size(request_)
