"""Text to token ids, one pre-token at a time, in the same way as the model's tokenizer.

The pre-tokenizer and the merges are called directly, for three reasons: this gives the boundaries
between pre-tokens, it can encode the beginning of a pre-token by itself, and text that looks like a
control token remains text.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

# Longer pre-tokens seldom recur, so they are not cached. A full cache takes about 5 MB; at most 90 MB, if each
# pre-token has 128 bytes and each byte is a token.
_MAX_CACHED_BYTES = 128
_MAX_CACHED_PRE_TOKENS = 16_384


class PreToken(NamedTuple):  # a thousand per keystroke; takes a third of the time of a frozen dataclass
    """A run of text that the tokenizer merges by itself, as UTF-8. `end` counts bytes from the start of the text.

    Some tokenizers split inside a character (Falcon: digits are separated after `¼` has become two bytes, one of which
    counts as a digit).
    """

    data: bytes
    end: int


class TextEncoder(Protocol):
    """Splits text into pre-tokens and encodes each. The ids of a text are the concatenated ids of its pre-tokens."""

    start_ids: tuple[int, ...]  # special tokens that begin every text

    def normalize(self, text: str) -> str:
        """The text as the tokenizer normalizes it, e.g. in NFC. The ids are those of the normalized text."""
        ...

    def find_dummy_prefix(self, text: str) -> str:
        """The blank that the tokenizer puts before the text, or an empty string."""
        ...

    def split(self, text: str) -> list[PreToken]:
        """The pre-tokens of the text, in order. Concatenated, they are the text."""
        ...

    def is_added_text(self, pre_token: bytes) -> bool:
        """True for an added token that is ordinary text. It is one token, and found before all other pre-tokens."""
        ...

    def find_openings(self, text: str) -> list[int]:
        """Where an added text may begin that goes beyond the end of `text`: numbers of characters before the end."""
        ...

    def count_unsettled(self, text: str) -> int:
        """How many characters at the end of the text a normalizer may change if more text follows."""
        ...

    def encode(self, pre_token: bytes) -> tuple[int, ...]:
        """The ids of one whole pre-token."""
        ...

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        """The ids of the first bytes of a longer pre-token, if a token ends after these bytes.

        Some tokenizers look up a whole pre-token in the vocabulary before they merge (`ignore_merges`, as in
        Llama 3). There the ids differ from those of a whole pre-token with the same bytes.
        """
        ...


def cache_short(encode: Callable[[bytes], tuple[int, ...]]) -> Callable[[bytes], tuple[int, ...]]:
    """The same function, with a cache of its results for short pre-tokens."""
    encode_cached = lru_cache(_MAX_CACHED_PRE_TOKENS)(encode)

    def encode_any(pre_token: bytes) -> tuple[int, ...]:
        return encode_cached(pre_token) if len(pre_token) <= _MAX_CACHED_BYTES else encode(pre_token)

    return encode_any
