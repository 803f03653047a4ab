import random
from collections import Counter

import pytest

from inference.errors import OverloadedError
from inference.protocol.admission import Admission


def _fill(admission: Admission, tenant: str, num: int) -> int:
    """How many of so many requests are taken."""
    taken = 0
    for _ in range(num):
        try:
            admission.enter(tenant, is_prefetch=False)
            taken += 1
        except OverloadedError:
            pass
    return taken


def test_one_user_alone_has_all_room_and_another_gets_a_share_of_it_even_then() -> None:
    admission = Admission(max_running=2, max_waiting=10)
    assert _fill(admission, "greedy", 100) == 12
    assert _fill(admission, "other", 100) == 6
    assert _fill(admission, "third", 100) == 4
    assert _fill(admission, "greedy", 100) == 0


def test_a_request_that_has_ended_makes_room() -> None:
    admission = Admission(max_running=1, max_waiting=1)
    assert _fill(admission, "", 3) == 2
    admission.leave("")
    assert _fill(admission, "", 3) == 1


def test_a_prefetch_is_taken_only_while_nothing_waits() -> None:
    admission = Admission(max_running=1, max_waiting=5)
    admission.enter("a", is_prefetch=True)
    with pytest.raises(OverloadedError, match="try again"):
        admission.enter("b", is_prefetch=True)
    admission.enter("b", is_prefetch=False)


def test_however_many_users_come_the_number_of_requests_is_limited() -> None:
    admission, numbers, rng = Admission(4, 60), Counter[str](), random.Random(0)
    for _ in range(20_000):
        tenant = str(rng.randrange(500))
        numbers[tenant] += _fill(admission, tenant, rng.randrange(1, 100))
        assert numbers.total() <= 64 * 5  # 64 · (1 + 1/2 + … + 1/64)
