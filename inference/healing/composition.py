"""The normalizer NFC: which characters at the end of a text it may still compose with what follows."""

import unicodedata

_JAMO = range(0x1160, 0x1200)  # Hangul vowels and final consonants, which join the character before them


def count_unsettled_chars(text: str) -> int:
    """How many characters at the end of the text may change if more text follows: the last base and its marks."""
    num_chars = 0
    for character in reversed(text):
        num_chars += 1
        if not (unicodedata.category(character).startswith("M") or ord(character) in _JAMO):
            break
    return num_chars
