from collections.abc import Iterator
from enum import StrEnum

import numpy as np
import pytest

from inference.errors import InvalidRequestError
from inference.protocol.arrays import (
    FieldTypes,
    check_known,
    to_array,
    to_bytes,
    to_member,
    to_single,
    to_text,
)

_TYPES: FieldTypes = {"prefix": ("BYTES", np.object_), "seed": ("INT64", np.int64)}


class _Color(StrEnum):
    RED = "red"
    BLUE = "blue"


def test_texts_become_utf8_arrays_and_bytes_stay_unchanged() -> None:
    array = to_array(["é", b"\xff"], np.object_)

    assert array.tolist() == [b"\xc3\xa9", b"\xff"]
    assert array.dtype == np.object_


def test_items_of_a_bytes_array_are_read_as_bytes_or_as_text() -> None:
    assert (to_bytes("é"), to_bytes(b"\xff")) == (b"\xc3\xa9", b"\xff")
    assert (to_text("prefix", "é"), to_text("prefix", b"\xc3\xa9")) == ("é", "é")


def test_text_that_is_not_utf8_is_refused_with_its_position() -> None:
    with pytest.raises(InvalidRequestError, match=r"^prefix is not UTF-8: invalid start byte at byte 1$"):
        to_text("prefix", b"a\xff")


def test_only_an_array_with_one_item_has_a_single_item() -> None:
    assert to_single("seed", np.array([[7]])) == 7
    with pytest.raises(InvalidRequestError, match=r"^seed takes one value, not 2$"):
        to_single("seed", np.array([7, 8]))


def test_an_invalid_enum_value_is_refused_with_the_valid_ones() -> None:
    assert to_member("color", "red", _Color) is _Color.RED
    with pytest.raises(InvalidRequestError, match=r"^color must be one of red, blue, not 'green'$"):
        to_member("color", "green", _Color)


def test_a_bad_value_of_a_megabyte_is_quoted_only_in_part() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        to_member("color", "\x00" * 2**20, _Color)

    assert len(str(caught.value)) < 500
    assert "1048576" in str(caught.value)


def test_the_first_unknown_field_is_refused_with_the_known_ones() -> None:
    check_known(["seed", "prefix"], _TYPES)
    with pytest.raises(InvalidRequestError, match=r"^unknown field 'z'; known are prefix, seed$"):
        check_known(["seed", "z", "a"], _TYPES)


def test_an_unknown_field_with_a_name_of_a_megabyte_is_quoted_only_in_part() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_known(["x" * 2**20], _TYPES)

    assert len(str(caught.value)) < 500


def test_only_the_first_unknown_field_is_read() -> None:
    seen = []

    def iter_names() -> Iterator[str]:
        for number in range(40_000):
            seen.append(number)
            yield f"field_{number}"

    with pytest.raises(InvalidRequestError, match="field_0"):
        check_known(iter_names(), _TYPES)
    assert seen == [0]
