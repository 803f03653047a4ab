from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.scheduler import TenantShares


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def shares(clock: _Clock) -> TenantShares:
    return TenantShares(clock)


def _find_behind(shares: TenantShares, tenants: Iterable[str]) -> set[str]:
    return {tenant for tenant in tenants if shares.is_behind(tenant)}


def test_a_tenant_alone_is_never_behind(shares: TenantShares) -> None:
    shares.enter("a")
    assert not shares.is_behind("a")
    shares.charge("a", 100.0)

    assert not shares.is_behind("a")


def test_a_tenant_that_got_clearly_less_is_behind(shares: TenantShares) -> None:
    for tenant in "abc":
        shares.enter(tenant)
    for tenant, work in (("a", 100.0), ("b", 95.0), ("c", 60.0)):
        shares.charge(tenant, work)

    assert _find_behind(shares, "abc") == {"c"}


def test_work_fades(shares: TenantShares, clock: _Clock) -> None:
    """Each worked at a time of its own. What counts is how long ago."""
    shares.charge("long ago", 200.0)
    clock.now = 60.0
    shares.charge("now", 100.0)

    assert _find_behind(shares, ["long ago", "now"]) == {"long ago"}


@pytest.mark.parametrize("step_s", [1.0, 7.0, 29.0, 31.0, 1000.0])
def test_how_often_work_is_charged_does_not_matter(shares: TenantShares, clock: _Clock, step_s: float) -> None:
    """Each tenant gets the same at the same times, so none is behind."""
    for number in range(100):
        clock.now = number * step_s
        for tenant in "abc":
            shares.charge(tenant, 10.0)

    assert _find_behind(shares, "abc") == set()


def test_a_tenant_may_catch_up_a_little_only(shares: TenantShares) -> None:
    """Otherwise one that asked for nothing for a while would hold up the others."""
    shares.charge("busy", 10_000.0)
    shares.charge("returning", 1.0)
    shares.enter("returning")
    num_charges = 0
    while shares.is_behind("returning"):
        shares.charge("returning", 10.0)
        num_charges += 1

    assert 6 <= num_charges <= 12  # 64, and its share of what is done meanwhile


def test_tenants_are_forgotten(shares: TenantShares, clock: _Clock) -> None:
    shares.charge("gone", 100.0)
    clock.now = 1e9  # years
    shares.enter("new")

    assert len(shares) == 1


@given(wanting=st.lists(st.sets(st.sampled_from("abc"), min_size=1), max_size=200))
def test_of_those_that_want_work_the_least_served_gets_it(wanting: list[set[str]]) -> None:
    """Whoever asks always is never far below the others."""
    shares, served = TenantShares(_Clock()), dict.fromkeys("abcd", 0)
    for others in wanting:
        everyone = sorted({*others, "d"})
        for tenant in everyone:
            shares.enter(tenant)
        behind = _find_behind(shares, "abcd")
        chosen = min(everyone, key=lambda tenant: (tenant not in behind, tenant))  # "d" comes last of equals
        shares.charge(chosen, 10.0)
        served[chosen] += 1

    assert served["d"] >= 0.6 * len(wanting) / 4 - 7
