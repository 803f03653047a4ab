from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.prefill_speed import PrefillSpeed
from inference.engine.scheduler import Scheduler, TenantShares
from inference.errors import OverloadedError
from inference.protocol.completion import CompletionRequest, Priority
from tests.support.engine_bench import Clock


@dataclass(eq=False)
class _Request:
    tenant: str = "a"
    document: str = ""
    priority: Priority = Priority.INTERACTIVE
    work: float = 0.0
    is_begun: bool = False
    is_too_late: bool = False
    submitted_at: float = 0.0
    num_to_prefill: int = 0
    num_sequences: int = 1
    num_tokens: int = 1

    @property
    def request(self) -> CompletionRequest:
        return CompletionRequest(
            "", tenant=self.tenant, document=self.document, priority=self.priority, num_candidates=self.num_sequences
        )

    def is_late(self, _now: float) -> bool:
        return self.is_too_late


def _fill(*requests: _Request) -> Scheduler[_Request]:
    scheduler: Scheduler[_Request] = Scheduler(max_sequences=4, max_tokens=20, clock=lambda: 0.0)
    for request in requests:
        scheduler.add(request)
    return scheduler


_LONG_WAIT = -0.7  # submitted then, it has waited for long
_PREFILLS = _Request(document="x", num_to_prefill=500)


@pytest.mark.parametrize(
    ("arrived", "order"),
    [
        pytest.param([_Request(is_begun=True), _Request()], [0, 1], id="a begun one before a new one"),
        pytest.param([_Request(work=257.0, is_begun=True), _Request()], [1, 0], id="one that took much work gives way"),
        pytest.param(
            [_Request(priority=Priority.PREFETCH, is_begun=True), _Request(work=5000.0, is_too_late=True)],
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
        pytest.param(
            [_Request(is_too_late=True), _Request(), _Request(priority=Priority.PREFETCH)],
            [1, 0, 2],
            id="a late one after those in time",
        ),
    ],
)
def test_the_order_follows_the_rules(arrived: list[_Request], order: list[int]) -> None:
    assert _fill(*arrived).sort() == [arrived[index] for index in order]


def test_a_tenant_that_got_clearly_less_than_the_others_comes_first_but_one_that_writes_goes_on() -> None:
    served, waiting = _Request("a", document="x"), _Request("b", document="x")
    scheduler = _fill(waiting, served)
    assert scheduler.sort() == [served, waiting]

    scheduler.charge(served, 130.0)
    scheduler.charge(waiting, 70.0)

    assert scheduler.sort() == [waiting, served]
    served.is_begun = True
    assert scheduler.sort() == [served, waiting]


def test_a_tenant_that_got_far_more_than_the_others_gives_way_even_while_it_writes() -> None:
    served, waiting = _Request("a", is_begun=True), _Request("b")
    scheduler = _fill(served, waiting)
    scheduler.charge(served, 130.0)
    assert scheduler.sort() == [waiting, served]


def test_who_sends_several_pauses_while_a_tenant_that_got_less_waits() -> None:
    first, second, other = _Request("a", is_begun=True), _Request("a", is_begun=True), _Request("b")
    scheduler = _fill(first, second, other)
    scheduler.charge(first, 130.0)
    scheduler.charge(other, 70.0)

    assert scheduler.sort() == [other, first, second]
    assert not scheduler.is_stepped_with(first, other)
    scheduler.remove(second)
    assert scheduler.sort() == [first, other]
    assert scheduler.is_stepped_with(other, first)


def test_of_several_tenants_each_has_one_request_in_a_step() -> None:
    first, second = _Request("a", is_begun=True), _Request("a", is_begun=True)
    others = [_Request("b"), _Request("b")]  # who begins to send a lot has been served less, too
    scheduler = _fill(first, second, *others)
    scheduler.charge(first, 130.0)
    scheduler.charge(others[0], 70.0)

    ordered = scheduler.sort()
    assert ordered == [first, others[0], second, others[1]]
    assert [scheduler.is_stepped_with(each, first) for each in ordered] == [True, True, False, False]
    assert scheduler.is_stepped_with(others[1], second)  # if neither of the first two can begin


def test_nobody_pauses_for_a_prefetch() -> None:
    first, second, ahead = _Request("a"), _Request("a"), _Request("b", priority=Priority.PREFETCH)
    scheduler = _fill(ahead, first, second)
    scheduler.charge(first, 130.0)
    assert scheduler.sort() == [first, second, ahead]
    assert scheduler.is_stepped_with(second, first)
    assert not scheduler.is_stepped_with(ahead, first)


def test_a_part_of_the_room_is_kept_for_tenants_that_run_nothing() -> None:
    own, others = [_Request("a", is_begun=True) for _ in range(3)], _Request("b")
    scheduler = _fill(*own)
    scheduler.charge(own[0], 1.0)
    assert scheduler.has_room(_Request("a"))

    scheduler.charge(others, 1.0)
    assert not scheduler.has_room(_Request("a"))
    assert scheduler.has_room(others)


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
    with pytest.raises(OverloadedError):
        _fill().check_size(request_)


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def shares(clock: Clock) -> TenantShares:
    return TenantShares(clock)


def test_work_fades(shares: TenantShares, clock: Clock) -> None:
    """Each worked at a time of its own. What counts is how long ago."""
    shares.charge("long ago", 200.0)
    clock.now = 60.0
    shares.charge("now", 100.0)

    assert shares.find_behind({"long ago", "now"}) == {"long ago"}


@pytest.mark.parametrize("step_s", [1.0, 7.0, 29.0, 31.0, 1000.0])
def test_how_often_work_is_charged_does_not_matter(shares: TenantShares, clock: Clock, step_s: float) -> None:
    """Each tenant gets the same at the same times, so none is behind."""
    for number in range(100):
        clock.now = number * step_s
        for tenant in "abc":
            shares.charge(tenant, 10.0)

    assert shares.find_behind({*"abc"}) == set()


def test_tenants_are_forgotten(shares: TenantShares, clock: Clock) -> None:
    shares.charge("gone", 100.0)
    clock.now = 1e9  # years
    shares.charge("new", 1.0)

    assert len(shares._work) == 1


@given(wanting=st.lists(st.sets(st.sampled_from("abc"), min_size=1), max_size=200))
def test_of_those_that_want_work_the_least_served_gets_it(wanting: list[set[str]]) -> None:
    """Whoever asks always is never far below the others."""
    shares, served = TenantShares(Clock()), dict.fromkeys("abcd", 0)
    for others in wanting:
        everyone = sorted({*others, "d"})
        behind = shares.find_behind({*"abcd"})
        chosen = min(everyone, key=lambda tenant: (tenant not in behind, tenant))  # "d" comes last of equals
        shares.charge(chosen, 10.0)
        served[chosen] += 1

    assert served["d"] >= 0.6 * len(wanting) / 4 - 7


def test_the_prediction_follows_the_passes() -> None:
    speed = PrefillSpeed()
    speed.note(15, 1.0)  # a small pass says nothing
    assert speed.predict_s(1000) == 0.0
    speed.note(100, 1.0)
    assert speed.predict_s(50) == pytest.approx(0.5)
    speed.note(100, 2.0)
    assert 0.5 < speed.predict_s(50) < 1.0
    for _ in range(100):
        speed.note(200, 4.0)
    speed.note(16, 1.0)  # a small one says less

    assert speed.predict_s(50) == pytest.approx(1.0, rel=0.5)


@pytest.mark.parametrize(
    ("seconds_per_row", "expected"), [(None, 16), (0.0, 512), (0.001, 512), (0.01, 100), (0.2, 16)]
)
def test_a_step_takes_a_second_but_never_reads_very_few_or_very_many(
    seconds_per_row: float | None, expected: int
) -> None:
    speed = PrefillSpeed()
    if seconds_per_row is not None:
        speed.note(64, 64 * seconds_per_row)

    assert speed.find_max_rows() == expected
    for is_shared in (False, True):  # nobody waits for a prefetch's step
        assert speed.find_max_rows(True, is_shared) == max(expected // 8, 16)


def test_a_step_is_short_while_other_people_wait() -> None:
    speed = PrefillSpeed()
    speed.note(64, 0.064)
    assert (speed.find_max_rows(), speed.find_max_rows(is_shared=True)) == (512, 30)
