"""Conversion and validation of one field of a request or an answer as an array."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from inference.errors import InvalidRequestError, quote

Array = npt.NDArray[Any]  # BYTES tensors are object arrays; FieldTypes names the dtype of each field
FieldTypes = dict[str, tuple[str, type]]  # name -> (Triton type, NumPy type)

_Member = TypeVar("_Member", bound=StrEnum)


def to_array(values: Iterable[Any], dtype: type) -> Array:
    """The values as an array of shape [num_values]; strings as UTF-8 bytes."""
    if dtype is np.object_:
        values = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    return np.array(list(values), dtype=dtype)


def to_bytes(item: bytes | str) -> bytes:
    """An item of a BYTES array as bytes. Some versions of Triton's libraries return a str."""
    return item if isinstance(item, bytes) else item.encode()


def to_text(name: str, item: bytes | str) -> str:
    """An item of a BYTES array as a str. Raises InvalidRequestError if it is not UTF-8."""
    try:
        return to_bytes(item).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None


def to_member(name: str, value: str, kind: type[_Member]) -> _Member:
    """The member of the enumeration. Raises InvalidRequestError if there is none with this value."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidRequestError(f"{name} must be one of {', '.join(kind)}, not {quote(value)}") from None


def to_single(name: str, array: Array) -> Any:
    """The only item of the array. Raises InvalidRequestError if there is not exactly one."""
    items = array.reshape(-1)
    if len(items) != 1:
        raise InvalidRequestError(f"{name} takes one value, not {len(items)}")
    return items.item()


def check_known(names: Iterable[str], types: FieldTypes) -> None:
    """Raises InvalidRequestError for the first name that is not in `types`."""
    for name in names:
        if name not in types:
            raise InvalidRequestError(f"unknown field {quote(name)}; known are {', '.join(types)}")
