"""UTF-8 text that may end inside a character."""

import codecs
import contextlib
from functools import cache

import numpy as np
import numpy.typing as npt

from inference.characters.bundle import END, NUM_OUTCOMES
from inference.errors import InvalidRequestError


def split_text(data: bytes) -> tuple[str, bytes]:
    """The characters, and the bytes of an incomplete one at the end. Raises InvalidRequestError if it is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"the text is not UTF-8: {error.reason} at {data[error.start : error.end]!r}"
        ) from None
    return text, decoder.getstate()[0]


def split_whole_text(data: bytes) -> tuple[str, bytes]:
    """The characters before the first that is incomplete or not UTF-8, and all bytes after them."""
    try:
        return data.decode(), b""
    except UnicodeDecodeError as error:
        return data[: error.start].decode(), data[error.start :]


def find_possible(tail: bytes) -> npt.NDArray[np.bool_]:
    """[257]: whether each byte can follow in UTF-8, and whether the text can end here."""
    return _find_possible(split_text(tail)[1])


@cache  # an incomplete character has at most three bytes
def _find_possible(unfinished: bytes) -> npt.NDArray[np.bool_]:
    possible = np.zeros(NUM_OUTCOMES, np.bool_)
    possible[END] = not unfinished
    for byte in range(256):
        with contextlib.suppress(InvalidRequestError):
            split_text(unfinished + bytes([byte]))
            possible[byte] = True
    return possible
