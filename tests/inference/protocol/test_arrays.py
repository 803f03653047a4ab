from typing import Any

import numpy as np
import pytest

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError
from inference.protocol.adapter import read_inputs
from inference.protocol.arrays import (
    HEARTBEAT,
    HEARTBEAT_ANSWER_TYPES,
    Array,
    FieldTypes,
    asks_for_heartbeat,
    error_from_text,
    error_to_response,
    heartbeat_from_arrays,
    heartbeat_to_arrays,
    to_array,
    to_bytes,
    to_text,
)
from inference.protocol.completion_arrays import request_from_arrays
from tests.support.fakes import FakeRequest, FakeTriton

_TYPES: FieldTypes = {"prefix": ("BYTES", np.object_), "seed": ("INT64", np.int64)}


def _read(request: FakeRequest) -> dict[str, list[object]]:
    arrays = read_inputs(request, FakeTriton().get_input_tensor_by_name, _TYPES)
    return {name: array.tolist() for name, array in arrays.items()}


def test_texts_become_utf8_arrays_and_bytes_stay_unchanged() -> None:
    array = to_array(["é", b"\xff"], np.object_)

    assert array.tolist() == [b"\xc3\xa9", b"\xff"]
    assert array.dtype == np.object_


def test_items_of_a_bytes_array_are_read_as_bytes_or_as_text() -> None:
    assert (to_bytes("é"), to_bytes(b"\xff")) == (b"\xc3\xa9", b"\xff")
    assert (to_text("prefix", "é"), to_text("prefix", b"\xc3\xa9")) == ("é", "é")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["healing"], "1048576 characters"),
        (["x" * 2**20], "1048576 characters"),
        ([f"field_{number}" for number in range(40_000)], "unknown field 'field_0'; known are prefix, "),
    ],
)
def test_long_input_is_quoted_only_in_part(names: list[str], text: str) -> None:
    value = np.array([b"\x00" * 2**20], np.object_)
    with pytest.raises(InvalidRequestError, match=text) as caught:
        request_from_arrays({"prefix": value} | dict.fromkeys(names, value))

    assert len(str(caught.value)) < 500


def test_the_given_inputs_are_read() -> None:
    assert _read(FakeRequest({"seed": np.array([7])})) == {"seed": [7]}


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (b'{"seeds": 3}', "unknown field 'seeds'; known are prefix, seed"),
        (b'{"seed": 3}', "seed is a parameter of the request; give it as an input"),
        (b'{"\xff": 3}', "the names and values of the request's fields must be UTF-8"),
    ],
)
def test_a_field_that_is_no_input_is_refused(parameters: Any, text: str) -> None:
    request = FakeRequest({})
    request.raw_parameters = parameters

    with pytest.raises(InvalidRequestError, match=f"^{text}$"):
        _read(request)


@pytest.mark.parametrize("milliseconds", [0.0, 12.5, 3.6e6])
def test_a_heartbeat_is_unchanged_after_a_round_trip(milliseconds: float) -> None:
    arrays = heartbeat_to_arrays(milliseconds)

    assert heartbeat_from_arrays(arrays) == milliseconds
    for name, array in arrays.items():
        assert array.dtype == HEARTBEAT_ANSWER_TYPES[name][1]
        assert array.shape == (1,)


@pytest.mark.parametrize(
    ("arrays", "is_one"),
    [
        ({HEARTBEAT: np.array([True])}, True),
        ({HEARTBEAT: np.array([False])}, False),
        ({"prefix": np.array([b""], np.object_)}, False),
    ],
)
def test_only_a_request_with_the_heartbeat_input_is_a_heartbeat_request(arrays: dict[str, Array], is_one: bool) -> None:
    assert asks_for_heartbeat(arrays) is is_one


def test_another_answer_than_a_heartbeat_is_a_server_error() -> None:
    with pytest.raises(ServerError, match="heartbeat"):
        heartbeat_from_arrays({"text": np.array([b"x"], np.object_)})


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (InvalidRequestError("no"), InvalidRequestError, "INVALID_ARG"),
        (OverloadedError("no"), OverloadedError, "UNAVAILABLE"),
        (MidtokenError("no"), ServerError, "INTERNAL"),
        (ServerError("failed to open the stream"), ServerError, "INTERNAL"),
    ],
)
def test_an_error_keeps_its_type_and_text(error: MidtokenError, kind: type[MidtokenError], code: str) -> None:
    text, code_of_triton = error_to_response(error)
    received = error_from_text(text)
    assert (type(received), str(received), code_of_triton) == (kind, str(error), code)
