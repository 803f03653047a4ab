import numpy as np
import pytest

from inference.errors import ServerError
from inference.protocol.heartbeat import (
    HEARTBEAT,
    HEARTBEAT_ANSWER_TYPES,
    asks_for_heartbeat,
    heartbeat_from_arrays,
    heartbeat_to_arrays,
)


@pytest.mark.parametrize("milliseconds", [0.0, 12.5, 3.6e6])
def test_an_answer_is_unchanged_after_a_round_trip(milliseconds: float) -> None:
    arrays = heartbeat_to_arrays(milliseconds)

    assert heartbeat_from_arrays(arrays) == milliseconds
    for name, array in arrays.items():
        assert array.dtype == HEARTBEAT_ANSWER_TYPES[name][1]
        assert array.shape == (1,)


def test_only_a_request_with_the_heartbeat_input_is_a_heartbeat_request() -> None:
    assert asks_for_heartbeat({HEARTBEAT: np.array([True])})
    assert not asks_for_heartbeat({HEARTBEAT: np.array([False])})
    assert not asks_for_heartbeat({"prefix": np.array([b""], np.object_)})


def test_another_answer_is_a_server_error() -> None:
    with pytest.raises(ServerError, match="heartbeat"):
        heartbeat_from_arrays({"text": np.array([b"x"], np.object_)})
