"""The token paths of an unfinished text, which the coverings `canonical` and `single` follow.

They depend only on the text and the tokenizer, not on the model.
"""

import codecs
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from inference.characters.state import END, NUM_OUTCOMES
from inference.errors import InvalidRequestError
from inference.healing.covering import find_canonical_paths
from inference.healing.heal_point import encode_literally, find_section_heal_point
from inference.healing.text_encoder import TextEncoder
from trie_cache.trie import Trie


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


@cache  # an incomplete character has at most three bytes
def find_possible(unfinished: bytes) -> npt.NDArray[np.bool_]:
    """[257]: whether each byte can follow an incomplete character in UTF-8, and whether the text can end here."""
    possible = np.zeros(NUM_OUTCOMES, np.bool_)
    possible[END] = not unfinished
    for byte in range(256):
        with contextlib.suppress(InvalidRequestError):
            split_text(unfinished + bytes([byte]))
            possible[byte] = True
    return possible


@dataclass(frozen=True, slots=True)
class OpenPaths:
    """The stable tokens of a text, and the possible token paths after them."""

    stable_ids: tuple[int, ...]  # the first tokens, which no continuation can change
    num_stable_bytes: int  # the number of bytes that they spell
    paths: Mapping[tuple[int, ...], bytes]  # each path after them -> the remaining bytes


def find_canonical_open_paths(encoder: TextEncoder, trie: Trie, data: bytes) -> OpenPaths:
    """The canonical paths of the text with any continuation. Raises InvalidRequestError if it is not UTF-8."""
    text, unfinished = split_text(data)
    point = find_section_heal_point(encoder, text)
    kept = point.kept_ids[point.num_stable_ids :]
    paths = find_canonical_paths(encoder, trie, point, unfinished)
    return OpenPaths(
        point.kept_ids[: point.num_stable_ids],
        point.num_stable_bytes,
        {kept + path: remaining_bytes for path, remaining_bytes in paths.items()},
    )


def find_single_open_paths(encoder: TextEncoder, trie: Trie, data: bytes) -> OpenPaths:
    """The canonical tokens of the text, with and without the last. Raises InvalidRequestError if it is not UTF-8."""
    text, unfinished = split_text(data)
    point = find_section_heal_point(encoder, text)
    ids = encode_literally(encoder, text) + encoder.encode_beginning(unfinished)
    whole = ids[point.num_stable_ids :]
    remaining_bytes = data[point.num_stable_bytes :]
    spelled = b"".join(map(trie.spell, whole[:-1]))
    paths = {whole: b""} | ({whole[:-1]: remaining_bytes[len(spelled) :]} if whole else {})
    return OpenPaths(point.kept_ids[: point.num_stable_ids], point.num_stable_bytes, paths)
