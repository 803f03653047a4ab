import math

import pytest

from inference.protocol.completion import ExplainedNode
from midtoken.display.shares import find_shares


def _node(log_mass: float | None) -> ExplainedNode:
    return ExplainedNode(None, "", 0, log_mass, None, None)


def test_shares_are_of_all_crossings_and_sum_to_one() -> None:
    shares = find_shares([_node(math.log(0.3)), _node(None), _node(math.log(0.1))])
    assert shares[1] is None
    assert (shares[0], shares[2]) == pytest.approx((0.75, 0.25))


def test_masses_that_are_too_small_for_a_float_have_shares() -> None:
    assert find_shares([_node(-2000.0), _node(-2000.0)]) == pytest.approx((0.5, 0.5))


def test_without_a_crossing_there_are_no_shares() -> None:
    assert find_shares([_node(None), _node(None)]) == (None, None)
    assert find_shares([]) == ()
