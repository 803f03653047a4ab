"""How surprising characters are in code: what tells a password or a token from the words that programs consist of."""

import math
import re

from lsp_server.privacy.forms import BITS

RANDOM_BITS = 12.0  # of 100 words of code, less than one has as many; of 16 random letters and digits, 95 of 100

_BETWEEN = "_"  # any character that is no letter and no digit, and the place before a capital letter
_STATES = "abcdefghijklmnopqrstuvwxyz0" + _BETWEEN
_COST = {
    (one, other): (ord(mark) - ord("a")) / 2 + (math.log2(10) if other == "0" else 0)
    for one, row in zip(_STATES, BITS.split(), strict=True)
    for other, mark in zip(_STATES, row, strict=True)
}
_MAX_READ_CHARS = 200
_RUN = re.compile("[A-Za-z0-9]+")


def find_surprise(text: str) -> float:
    """Returns how many bits more the text costs as a word of code than as random characters of its own alphabet.

    It is negative for words, also those of abbreviations and a few digits, and grows with the length of random text.
    """
    bits, num_chars, state, before = 0.0, 0, _BETWEEN, ""
    for char in text[:_MAX_READ_CHARS]:
        if "a" <= before <= "z" and "A" <= char <= "Z":
            bits, state = bits + _COST[state, _BETWEEN], _BETWEEN
        after = "0" if "0" <= char <= "9" else char.lower() if char.isascii() and char.isalpha() else _BETWEEN
        is_series = before != "" and ord(char) - ord(before) in (0, 1)  # as in abc, 0123 and xxx
        if after != _BETWEEN:
            bits, num_chars = bits + (1 if is_series else _COST[state, after]), num_chars + 1
        elif state != _BETWEEN:
            bits += _COST[state, after] - 1
        state, before = after, char
    return bits - num_chars * _find_alphabet_bits(text[:_MAX_READ_CHARS])


def is_random(text: str, min_bits: float = RANDOM_BITS, min_chars: int = 8) -> bool:
    """True if letters and digits in it, so many without another character between, are no word and no number."""
    runs = (run for run in _RUN.findall(text[:_MAX_READ_CHARS]) if len(run) >= min_chars and not run.isdecimal())
    return any(find_surprise(run) >= min_bits for run in runs)


def _find_alphabet_bits(text: str) -> float:
    """Returns the bits of one character of the smallest usual alphabet that has all of the text."""
    chars = set(filter(str.isalnum, text))
    letters = 52 if text.upper() != text != text.lower() else 16 if chars <= _HEX else 26
    return math.log2(letters + (10 if letters > 16 and any(map(str.isdigit, chars)) else 0))


_HEX = frozenset("0123456789abcdefABCDEF")
