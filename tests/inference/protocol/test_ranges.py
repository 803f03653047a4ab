"""The check of a number in a request."""

import pytest

from inference.errors import InvalidRequestError
from inference.protocol.ranges import check_range


@pytest.mark.parametrize("value", [0, 4, float("nan")])
def test_a_value_outside_its_range_is_refused_with_the_range(value: float) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^seed must be between 1 and 3, not {value}$"):
        check_range("seed", value, 1, 3)


@pytest.mark.parametrize("value", [1, 3])
def test_a_range_includes_its_ends(value: int) -> None:
    check_range("seed", value, 1, 3)
