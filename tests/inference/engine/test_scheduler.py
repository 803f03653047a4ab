from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.scheduler import Scheduler
from inference.errors import OverloadedError
from inference.protocol.completion import Priority


@dataclass(eq=False)
class _Request:
    tenant: str = "a"
    document: str = ""
    priority: Priority = Priority.INTERACTIVE
    work: float = 0.0
    is_begun: bool = False
    will_be_late: bool = False
    submitted_at: float = 0.0
    num_unread: int = 0
    num_sequences: int = 1
    num_tokens: int = 1


def _build() -> Scheduler[_Request]:
    return Scheduler(max_sequences=4, max_tokens=20, clock=lambda: 0.0)


def _fill(*requests: _Request) -> Scheduler[_Request]:
    scheduler = _build()
    for request in requests:
        scheduler.add(request)
    return scheduler


_requests = st.builds(
    _Request,
    tenant=st.sampled_from("abc"),
    priority=st.sampled_from(Priority),
    is_begun=st.booleans(),
    work=st.sampled_from([0.0, 3.0, 100.0, 1000.0]),
)


@given(requests=st.lists(_requests, max_size=12))
def test_everything_is_sorted_once_and_people_come_before_prefetches(requests: list[_Request]) -> None:
    ordered = _fill(*requests).sort()

    assert sorted(map(id, ordered)) == sorted(map(id, requests))
    is_prefetch = [request.priority is Priority.PREFETCH for request in ordered]
    assert is_prefetch == sorted(is_prefetch)


def test_a_begun_request_comes_before_a_new_one() -> None:
    begun, new = _Request(is_begun=True), _Request()

    assert _fill(begun, new).sort() == [begun, new]


def test_a_request_that_took_much_work_gives_way_to_a_new_one() -> None:
    long, new = _Request(is_begun=True), _Request()
    scheduler = _fill(long)
    scheduler.charge(long, 257.0)
    scheduler.add(new)

    assert scheduler.sort() == [new, long]


def test_of_requests_that_name_no_document_the_oldest_comes_first() -> None:
    older, newer = _Request(), _Request("b")

    assert _fill(older, newer).sort() == [older, newer]


def test_of_requests_that_can_be_superseded_the_newest_comes_first() -> None:
    older, newer = _Request(document="x"), _Request("b", document="y")

    assert _fill(older, newer).sort() == [newer, older]


def test_a_tenant_that_got_clearly_less_than_the_others_comes_first() -> None:
    served, waiting = _Request("a", document="x"), _Request("b", document="x")
    scheduler = _fill(waiting, served)
    assert scheduler.sort() == [served, waiting]

    scheduler.charge(served, 130.0)

    assert scheduler.sort() == [waiting, served]


def test_work_that_nobody_else_waited_for_takes_nothing_from_a_share() -> None:
    early = _Request("a", document="x")
    scheduler = _fill(early)
    scheduler.charge(early, 500.0)
    late, newest = _Request("b", document="x"), _Request("a", document="y")
    scheduler.add(late)
    scheduler.add(newest)

    assert scheduler.sort() == [newest, late, early]


def test_a_request_that_must_read_a_long_context_waits_for_those_that_are_nearly_ready_to_write() -> None:
    reading, ready = _Request(document="x", num_unread=500), _Request("b", document="x", num_unread=3)

    assert _fill(ready, reading).sort() == [ready, reading]


def test_a_request_that_has_waited_for_long_may_read() -> None:
    """Its user waits, and the others would come before it as long as somebody types."""
    reading, ready = _Request(document="x", num_unread=500, submitted_at=-0.3), _Request("b", document="x")

    assert _fill(ready, reading).sort() == [reading, ready]


def test_of_requests_that_have_waited_for_long_the_oldest_comes_first() -> None:
    oldest = _Request(document="x", submitted_at=-3)
    older, newer = _Request("b", document="x", submitted_at=-2), _Request("c", document="x")

    assert _fill(oldest, older, newer).sort() == [oldest, older, newer]


def test_a_request_that_is_reading_is_interrupted_by_one_that_is_ready_to_write() -> None:
    reading, ready = _Request(document="x", num_unread=500, is_begun=True), _Request("b", document="x")

    assert _fill(ready, reading).sort() == [ready, reading]


def test_a_request_that_writes_goes_on() -> None:
    writing, newer = _Request(document="x", is_begun=True), _Request("b", document="x")
    scheduler = _fill(writing, newer)
    scheduler.charge(writing, 130.0)  # even if its tenant has had more than its share

    assert scheduler.sort() == [writing, newer]


def test_reading_holds_up_no_request_that_names_no_document() -> None:
    """The ready ones would come before it for ever."""
    reading, ready = _Request(num_unread=500), _Request(num_unread=0)

    assert _fill(reading, ready).sort() == [reading, ready]


def test_a_request_that_will_be_late_comes_after_those_that_can_be_in_time() -> None:
    late, other, prefetch = _Request(will_be_late=True), _Request(), _Request(priority=Priority.PREFETCH)

    assert _fill(late, other, prefetch).sort() == [other, late, prefetch]


def test_a_newer_request_supersedes_the_older_one_of_its_document() -> None:
    scheduler = _build()
    older = _Request(document="x")

    assert scheduler.add(older) is None
    assert scheduler.add(_Request(document="y")) is None
    assert scheduler.add(_Request("b", document="x")) is None
    assert scheduler.add(_Request(document="x")) is older


def test_requests_without_a_document_supersede_nothing() -> None:
    scheduler = _build()

    assert [scheduler.add(_Request()) for _ in range(3)] == [None] * 3


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
    with pytest.raises(OverloadedError):
        _fill().check_size(request_)
