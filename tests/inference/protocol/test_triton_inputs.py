import numpy as np
import pytest

from inference.errors import InvalidRequestError
from inference.protocol.arrays import FieldTypes
from inference.protocol.triton_inputs import read_inputs
from tests.support.fakes import FakeRequest, FakeTriton

_TYPES: FieldTypes = {"prefix": ("BYTES", np.object_), "seed": ("INT64", np.int64)}


def _read(request: FakeRequest) -> dict[str, list[object]]:
    arrays = read_inputs(request, FakeTriton().get_input_tensor_by_name, _TYPES)
    return {name: array.tolist() for name, array in arrays.items()}


def test_the_given_inputs_are_read() -> None:
    assert _read(FakeRequest({"seed": np.array([7])})) == {"seed": [7]}


def test_an_unknown_json_field_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"^unknown field 'seeds'; known are prefix, seed$"):
        _read(FakeRequest({}, parameters={"seeds": 3}))


def test_an_input_that_was_given_as_a_parameter_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"^seed is a parameter of the request; give it as an input$"):
        _read(FakeRequest({}, parameters={"seed": 3}))


def test_a_parameter_name_that_is_not_utf8_is_an_invalid_request() -> None:
    request = FakeRequest({})
    request.raw_parameters = b'{"\xff": 3}'

    with pytest.raises(InvalidRequestError, match=r"^the names and values of the request's fields must be UTF-8$"):
        _read(request)
