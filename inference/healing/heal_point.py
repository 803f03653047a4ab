"""The heal point: the position before which no continuation of the text can change the tokens.

Naive form: tokenize the text with every possible continuation, and keep the tokens that all share.

1. Only pre-token boundaries matter. Tokens never cross them, and a pre-token that ends at the same
   position in every continuation keeps its tokens.
2. A pre-tokenizer looks only at the kind of the next characters, so some forty continuations
   represent all of them.
3. A continuation can change only the last few pre-tokens and the blanks between them, so only the
   tail is split again.
"""

from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise, takewhile

from inference.healing.text_encoder import PreToken, TextEncoder

# The continuations to try, one for each branch of the known pre-tokenizers' patterns: letters in
# both cases, blank and letter, digits up to a group of three, line ends with and without
# indentation, quotes, contractions and the letters that complete one ("'" and "s", "'l" and "l", "'r"
# and "e"), punctuation, wide characters and their punctuation, a combining mark, an emoji and its joiner.
_PROBES = (
    "a", "A", "aA", "Aa", " a", " A", "  a", "1", "12", "123", " 1", "\n", "\n\n", "\n a", "\r\n", " \n", "\t", "\ta",
    " ", "  ", "'", "'s", "'ll a", "s", "l", "e", '"', ".", "=", "(", " (", "_a", "/", "//", "é", "中", "。", " 中",
    "\u0301", "😀", "\u200d", "\xa0",
)  # fmt: skip
_NUM_TAIL_PRE_TOKENS = 3  # a contraction joins three ("it", "'", "s"), the most that a continuation can join

_MAX_HEALED_BYTES = 256  # exceeded by long runs of blanks, base64, CJK lines, minified code
_REACH_BYTES = 128  # the longest token of the vocabularies in use, so the earliest start of a crossing token


@dataclass(frozen=True, slots=True)
class HealPoint:
    """A text divided at its heal point."""

    kept_ids: tuple[int, ...]  # tokens of everything before the healed bytes
    healed: bytes  # the text after the heal point, which the model generates again
    boundary_sets: tuple[tuple[int, ...], ...]  # in each: byte offsets in `healed` where pre-tokens end
    num_stable_bytes: int = 0  # dropping these first bytes would not move the heal point
    num_stable_ids: int = 0  # the number of their tokens, the first of `kept_ids`


def find_heal_point(encoder: TextEncoder, text: str) -> HealPoint:
    """Divides `text` at its heal point."""
    return find_section_heal_point(encoder, encoder.find_dummy_prefix(text) + text)


def find_section_heal_point(encoder: TextEncoder, text: str) -> HealPoint:
    """Like `find_heal_point`, for text inside a prompt, which gets no dummy prefix."""
    if not text:
        return HealPoint((), b"", ((),))
    whole = encoder.split(text)
    anchor = _find_anchor(whole)
    tail_start = whole[anchor - 1].end if anchor else 0
    tail = text[tail_start:]
    boundary_sets = {_find_complete_ends(encoder, tail, probe) for probe in _PROBES}
    shared = _find_shared(boundary_sets)
    healed_start = shared[-1] if shared else 0
    boundary_sets = {
        tuple(len(tail[healed_start:end].encode()) for end in boundaries[len(shared) :]) for boundaries in boundary_sets
    }
    stable_ids = _encode_all(encoder, [piece.text for piece in whole[:anchor]])
    kept_ids = stable_ids + _encode_all(encoder, [tail[at:end] for at, end in pairwise((0, *shared))])
    healed, num_stable_bytes = tail[healed_start:].encode(), len(text[:tail_start].encode())
    point = HealPoint(kept_ids, healed, tuple(sorted(boundary_sets)), num_stable_bytes, len(stable_ids))
    return _shorten(encoder, point)


def encode_text(encoder: TextEncoder, text: str) -> tuple[int, ...]:
    """The canonical tokens of the text, unhealed."""
    return encode_section(encoder, encoder.find_dummy_prefix(text) + text) if text else ()


def encode_section(encoder: TextEncoder, text: str) -> tuple[int, ...]:
    """Like `encode_text`, for text inside a prompt, which gets no dummy prefix."""
    return _encode_all(encoder, [piece.text for piece in encoder.split(text)])


def _encode_all(encoder: TextEncoder, pre_tokens: list[str]) -> tuple[int, ...]:
    return tuple(chain.from_iterable(map(encoder.encode, pre_tokens)))


def _shorten(encoder: TextEncoder, point: HealPoint) -> HealPoint:
    """Moves the heal point into a very long open pre-token, to a position before which its tokens no longer change.

    If the boundary sets differ before that position, the boundaries of the text without a continuation are used.
    Only in this case is the heal point inexact. The tree stays small.
    """
    if len(point.healed) <= _MAX_HEALED_BYTES:
        return point
    ends = tuple(accumulate(len(piece.text.encode()) for piece in encoder.split(point.healed.decode())))
    last_cut = len(point.healed) - 2 * _REACH_BYTES
    for cut in range(last_cut, max(last_cut - _REACH_BYTES, 0), -1):
        is_inside_character = point.healed[cut] & 0xC0 == 0x80
        shortened = None if is_inside_character else _cut_at(encoder, point, ends, cut)
        if shortened is not None:
            return shortened
    return point


def _cut_at(encoder: TextEncoder, point: HealPoint, ends: tuple[int, ...], cut: int) -> HealPoint | None:
    """The heal point moved to `cut`, or None if `cut` is not a token boundary in every continuation."""
    healed = point.healed
    complete = tuple(end for end in ends if end < cut)
    boundary_sets = {
        boundaries[len(complete) :]
        for boundaries in point.boundary_sets
        if tuple(e for e in boundaries if e < cut) == complete
    }
    start = complete[-1] if complete else 0
    stem, following = encoder.encode_beginning(healed[start:cut]), encoder.encode_beginning(healed[cut:])
    if not boundary_sets or encoder.encode_beginning(healed[start:]) != stem + following:
        return None
    ends_to_try = {
        *range(len(healed) - _REACH_BYTES, len(healed)),
        *(end for boundaries in boundary_sets for end in boundaries),
    }
    if any(encoder.encode_beginning(healed[cut:end])[:1] != following[:1] for end in ends_to_try if end > cut):
        return None
    complete_ids = (encoder.encode(healed[at:end].decode()) for at, end in pairwise((0, *complete)))
    kept_ids = (*point.kept_ids, *chain.from_iterable(complete_ids), *stem)
    shifted = sorted(tuple(end - cut for end in boundaries if end > cut) for boundaries in boundary_sets)
    return replace(point, kept_ids=kept_ids, healed=healed[cut:], boundary_sets=tuple(shifted))


def _find_anchor(pre_tokens: list[PreToken]) -> int:
    """How many of the first pre-tokens are too far from the end for a continuation to change."""
    anchor = len(pre_tokens)
    while anchor and pre_tokens[anchor - 1].text.isspace():
        anchor -= 1
    anchor = max(anchor - _NUM_TAIL_PRE_TOKENS, 0)
    while anchor and pre_tokens[anchor - 1].text.isspace():
        anchor -= 1
    return anchor


def _find_complete_ends(encoder: TextEncoder, tail: str, probe: str) -> tuple[int, ...]:
    """The offsets in `tail` where pre-tokens end if `probe` follows it, up to and including the end of `tail`."""
    return tuple([piece.end for piece in encoder.split(tail + probe) if piece.end <= len(tail)])


def _find_shared(boundary_sets: set[tuple[int, ...]]) -> tuple[int, ...]:
    """The longest common beginning of all boundary sets, which is that of the smallest and the greatest one."""
    pairs = zip(min(boundary_sets), max(boundary_sets), strict=False)
    return tuple([end for end, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)])
