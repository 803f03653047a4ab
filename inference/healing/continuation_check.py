"""Checks that no continuation moves pre-token boundaries in a way that the heal point does not foresee.

The heal point tries some forty continuations at the end of a text. That is enough for the patterns in use, but a
pattern may look further ahead, or join what is further back: `\\w+(?=\\()` splits a word when a parenthesis follows
later letters, and `"[^"]*"` joins everything since the opening quote. Such a pre-tokenizer is refused.
"""

from itertools import product

from inference.errors import ModelError
from inference.healing.heal_point import HealPoint, find_heal_point
from inference.healing.text_encoder import TextEncoder

_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_BEGUN = (  # texts that end inside a construct which some pattern might close
    "foo bar",
    'x = "ab cd, ef gh',
    "x 'ab cd, ef gh",
    "to ab.cd-ef.gh",
    "f(ab, [cd {ef <gh",
    "1 12.345,678",
    "/* ab // cd # ef\n  gh",
    "  \t\n \n   ",
)


def check_reach(encoder: TextEncoder) -> None:
    """Raises ModelError if a continuation moves boundaries in another way than the heal point foresees."""
    for begun in _BEGUN:
        point = find_heal_point(encoder, begun)
        text = encoder.find_dummy_prefix(begun) + begun
        start = len(text.encode()) - len(point.healed)
        kept = tuple(piece.end for piece in encoder.split(text) if piece.end <= start)
        for more in _CONTINUATIONS:
            ends = tuple([piece.end for piece in encoder.split(text + more)])
            if tuple([end for end in ends if end <= start]) != kept or not _is_foreseen(point, start, ends):
                raise ModelError(
                    f"pre_tokenizer: {more!r} after {begun!r} moves the boundaries of pre-tokens in a way "
                    "that midtoken does not foresee, so it is not supported"
                )


def _is_foreseen(point: HealPoint, start: int, ends: tuple[int, ...]) -> bool:
    """True if these boundaries are a set of the heal point. One more at the cursor changes nothing."""
    num_bytes = len(point.healed)
    found = tuple([end - start for end in ends if start < end <= start + num_bytes])
    sets = {*point.boundary_sets, *point.added_text_sets}
    return found in sets or (bool(found) and found[-1] == num_bytes and found[:-1] in sets)


def _build_continuations() -> tuple[str, ...]:
    """Each punctuation mark by itself, after a letter, before one, and between two."""
    frames = product(("", "a"), ("", "a"))
    return tuple(before + mark + after for before, after in frames for mark in _PUNCTUATION)


_CONTINUATIONS = _build_continuations()
