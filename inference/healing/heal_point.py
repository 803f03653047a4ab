"""The heal point: the position before which no continuation of the text can change the tokens.

Naive form: tokenize the text with every possible continuation, and keep the tokens that all share.

1. Only pre-token boundaries matter. Tokens never cross them, and a pre-token that ends at the same
   position in every continuation keeps its tokens.
2. A pre-tokenizer looks only at the kind of the next characters, so some forty continuations
   represent all of them. Added texts are found before it looks: see `TextEncoder.find_openings`.
3. A continuation can change only the last few pre-tokens and the blanks between them, so only the
   tail is split again. Some tokenizers group digits from the right, so that one more digit moves all
   boundaries of a number. So the tail grows until all continuations share a boundary inside it.

The covering may find a nearer one, inside the open pre-token: see `inference.healing.covering`.
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise, takewhile

from inference.healing.open_tail import find_open_tail
from inference.healing.text_encoder import TextEncoder

_MAX_HEALED_BYTES = 256  # exceeded by long runs of blanks, base64, CJK lines, minified code
_REACH_BYTES = 128  # the longest token of the vocabularies in use, so the earliest start of a crossing token


@dataclass(frozen=True, slots=True)
class HealPoint:
    """A text divided at its heal point."""

    kept_ids: tuple[int, ...]  # tokens of everything before the healed bytes
    healed: bytes  # the text after the heal point, which the model generates again
    boundary_sets: tuple[tuple[int, ...], ...]  # in each: byte offsets in `healed` where pre-tokens end
    added_text_sets: tuple[tuple[int, ...], ...] = ()  # the same, if an added text begins at the last of the offsets
    num_unsettled_bytes: int = 0  # the last bytes, which a normalizer may change; the heal point stays before them
    num_stable_bytes: int = 0  # dropping these first bytes would not move the heal point
    num_stable_ids: int = 0  # the number of their tokens, the first of `kept_ids`


def find_heal_point(encoder: TextEncoder, text: str) -> HealPoint:
    """Divides `text` at its heal point. The kept tokens and the healed bytes spell the normalized text."""
    return find_section_heal_point(encoder, *prepare_text(encoder, text))


def prepare_text(encoder: TextEncoder, text: str) -> tuple[str, int]:
    """The text with normalizer and dummy prefix, and how many of its last bytes more text may change."""
    text = encoder.normalize(text)
    num_unsettled_bytes = len(text[len(text) - encoder.count_unsettled(text) :].encode())
    return encoder.find_dummy_prefix(text) + text, num_unsettled_bytes


def find_section_heal_point(encoder: TextEncoder, text: str, num_unsettled_bytes: int = 0) -> HealPoint:
    """Like `find_heal_point`, for text inside a prompt: as it is, without normalizer and dummy prefix.

    More text may change the last `num_unsettled_bytes` of it.
    """
    point = find_tail_heal_point(encoder, text, num_unsettled_bytes, is_beginning=True)
    assert point is not None, "nothing comes before the text"
    return point


def find_tail_heal_point(
    encoder: TextEncoder, text: str, num_unsettled_bytes: int, is_beginning: bool
) -> HealPoint | None:
    """Like `find_section_heal_point`, for the end of a text. None if what comes before it may matter."""
    if not text:
        return HealPoint((), b"", ((),)) if is_beginning else None
    whole = encoder.split(text)
    tail = find_open_tail(encoder, text, whole, is_beginning)
    if tail is None:
        return None
    last_start = len(tail.data) - num_unsettled_bytes
    shared = tuple([end for end in tail.shared if end <= last_start]) if num_unsettled_bytes else tail.shared
    start = shared[-1] if shared else 0
    stable = [piece.data for piece in takewhile(lambda piece: piece.end <= tail.start, whole)]
    stable_ids = _encode_all(encoder, stable)
    point = HealPoint(
        kept_ids=stable_ids + _encode_all(encoder, [tail.data[at:end] for at, end in pairwise((0, *shared))]),
        healed=tail.data[start:],
        boundary_sets=_move_sets(tail.boundary_sets, len(shared), start),
        added_text_sets=_move_sets(tail.added_text_sets, len(shared), start),
        num_unsettled_bytes=num_unsettled_bytes,
        num_stable_bytes=tail.start,
        num_stable_ids=len(stable_ids),
    )
    return _shorten(encoder, point)


def _move_sets(sets: Set[tuple[int, ...]], num_shared: int, start: int) -> tuple[tuple[int, ...], ...]:
    """The sets without their shared boundaries, counted from `start`."""
    return tuple(sorted({tuple([end - start for end in boundaries[num_shared:]]) for boundaries in sets}))


def encode_text(encoder: TextEncoder, text: str) -> tuple[int, ...]:
    """The canonical tokens of the text, unhealed."""
    text = encoder.normalize(text)
    return encode_literally(encoder, encoder.find_dummy_prefix(text) + text) if text else ()


def encode_section(encoder: TextEncoder, text: str) -> tuple[int, ...]:
    """Like `encode_text`, for text inside a prompt, which gets no dummy prefix."""
    return encode_literally(encoder, encoder.normalize(text))


def encode_literally(encoder: TextEncoder, text: str) -> tuple[int, ...]:
    """The tokens that spell exactly this text, without normalizer and dummy prefix."""
    return _encode_all(encoder, [piece.data for piece in encoder.split(text)])


def _encode_all(encoder: TextEncoder, pre_tokens: list[bytes]) -> tuple[int, ...]:
    return tuple(chain.from_iterable(map(encoder.encode, pre_tokens)))


def _shorten(encoder: TextEncoder, point: HealPoint) -> HealPoint:
    """Moves the heal point into a very long open pre-token, to a position before which its tokens no longer change.

    If the boundary sets differ before that position, the boundaries of the text without a continuation are used.
    Only in this case is the heal point inexact. The tree stays small.
    """
    if len(point.healed) <= _MAX_HEALED_BYTES:
        return point
    ends = _split_healed(encoder, point)
    last_cut = len(point.healed) - 2 * _REACH_BYTES
    for cut in range(last_cut, max(last_cut - _REACH_BYTES, 0), -1):
        is_inside_character = point.healed[cut] & 0xC0 == 0x80
        shortened = None if is_inside_character else _cut_at(encoder, point, ends, cut)
        if shortened is not None:
            return shortened
    return point


def _split_healed(encoder: TextEncoder, point: HealPoint) -> tuple[int, ...]:
    """The boundaries without a continuation; or those of some continuation, if the first is inside a character."""
    if point.healed[0] & 0xC0 == 0x80:
        return max(point.boundary_sets)
    return tuple(accumulate(len(piece.data) for piece in encoder.split(point.healed.decode())))


def _cut_at(encoder: TextEncoder, point: HealPoint, ends: tuple[int, ...], cut: int) -> HealPoint | None:
    """The heal point moved to `cut`, or None if `cut` is not a token boundary in every continuation."""
    healed = point.healed
    complete = tuple(end for end in ends if end < cut)
    boundary_sets = _find_after(point.boundary_sets, complete, cut)
    added_text_sets = _find_after(point.added_text_sets, complete, cut)
    start = complete[-1] if complete else 0
    stem, following = encoder.encode_beginning(healed[start:cut]), encoder.encode_beginning(healed[cut:])
    if not boundary_sets or encoder.encode_beginning(healed[start:]) != stem + following:
        return None
    ends_to_try = {*range(len(healed) - _REACH_BYTES, len(healed)), *chain.from_iterable(boundary_sets)}
    if any(encoder.encode_beginning(healed[cut:end])[:1] != following[:1] for end in ends_to_try if end > cut):
        return None
    complete_ids = _encode_all(encoder, [healed[at:end] for at, end in pairwise((0, *complete))])
    return replace(
        point,
        kept_ids=(*point.kept_ids, *complete_ids, *stem),
        healed=healed[cut:],
        boundary_sets=_move_sets(boundary_sets, 0, cut),
        added_text_sets=_move_sets({ends for ends in added_text_sets if ends}, 0, cut),
    )


def _find_after(sets: tuple[tuple[int, ...], ...], complete: tuple[int, ...], cut: int) -> frozenset[tuple[int, ...]]:
    """The boundaries after `cut` in those sets that are equal to `complete` before it."""
    return frozenset(
        tuple([end for end in ends if end > cut])
        for ends in sets
        if tuple([end for end in ends if end < cut]) == complete
    )
