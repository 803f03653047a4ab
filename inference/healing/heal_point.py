"""The heal point: the position before which no continuation of the text can change the tokens.

Naive form: tokenize the text with every possible continuation, and keep the tokens that all share.

1. Only pre-token boundaries matter. Tokens never cross them, and a pre-token that ends at the same
   position in every continuation keeps its tokens.
2. A pre-tokenizer depends only on the kind of the characters that follow, so some forty continuations
   represent all of them. Added texts are found before it runs: see `TextEncoder.find_openings`.
3. A continuation can change only the last few pre-tokens and the blanks between them, so only the
   tail is split for each continuation. Some tokenizers group digits from the right, so one more digit
   moves every boundary of a number: the tail grows until all continuations share a boundary in it.

The covering may find a later heal point, inside the open pre-token: see `inference.healing.covering`.

`HealPointCache` finds those of texts that differ little from earlier ones, as they do from one keystroke to the next.
To split the whole text again takes 2 ms for 8 kB. But an earlier text had a part that no continuation can change. A
text that begins like the earlier one has the same tokens there, and only what follows is split: up to a thousand
characters.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from inference.healing.text_encoder import PreToken, TextEncoder
from inference.healing.token_tree import find_common

# The continuations to try, one for each branch of the known pre-tokenizers' patterns: letters in
# both cases, blank and letter, digits up to a group of three, line ends with and without
# indentation, quotes, contractions and the letters that complete one ("'" and "s", "'l" and "l", "'r"
# and "e"), punctuation, wide characters and their punctuation, a combining mark, an emoji and its joiner,
# and the wide blank, which some patterns count among wide punctuation, too.
_PROBES = (
    "a", "A", "aA", "Aa", " a", " A", "  a", "1", "12", "123", " 1", "\n", "\n\n", "\n a", "\r\n", " \n", "\t", "\ta",
    " ", "  ", "'", "'s", "'ll a", "s", "l", "e", '"', ".", "=", "(", " (", "_a", "/", "//", "é", "中", "。", " 中",
    "\u0301", "😀", "\u200d", "\xa0", "\u3000",
)  # fmt: skip
_NUM_TAIL_PRE_TOKENS = 3  # a contraction joins three ("it", "'", "s"); where more can change, the tail grows
_TAIL_GROWTH = 4
_MAX_HEALED_BYTES = 256  # exceeded by long runs of blanks, base64, CJK lines, minified code
_REACH_BYTES = 128  # the longest token of the vocabularies in use, so the earliest start of a crossing token
_MAX_BEGINNINGS = 64
_MAX_AGAIN = 1024  # characters to split again; before more, a later beginning is settled
_DISTANCE = 256  # characters between a new beginning and the end, which later keys may delete


class Split(NamedTuple):
    """A way in which the end of a text may be split into pre-tokens, depending on what follows."""

    opens_added_text: bool  # at the last of the ends, an added text begins that goes beyond the text
    ends: tuple[int, ...]  # byte offsets where pre-tokens end


@dataclass(frozen=True, slots=True)
class HealPoint:
    """A text divided at its heal point."""

    kept_ids: tuple[int, ...]  # tokens of everything before the healed bytes
    healed: bytes  # the text after the heal point, which the model generates again
    splits: tuple[Split, ...]  # in which the healed bytes may be split
    num_unsettled_bytes: int = 0  # the last bytes, which a normalizer may change; the heal point stays before them
    num_stable_bytes: int = 0  # dropping these first bytes would not move the heal point
    num_stable_ids: int = 0  # the number of their tokens, the first of `kept_ids`


def find_heal_point(encoder: TextEncoder, text: str) -> HealPoint:
    """Divides `text` at its heal point. The kept tokens and the healed bytes spell what `prepare_text` makes of it."""
    return find_section_heal_point(encoder, *prepare_text(encoder, text))


def prepare_text(encoder: TextEncoder, text: str) -> tuple[str, int]:
    """The text as the model sees it, and how many of its last bytes may change if more text follows.

    It is normalized, begins with its dummy prefix, and has no character that the vocabulary cannot spell.
    """
    text = encoder.normalize(text)
    num_unsettled = encoder.count_unsettled(text)
    text = encoder.replace_unspelled(text)
    num_unsettled_bytes = len(text[max(len(text) - num_unsettled, 0) :].encode())
    return encoder.find_dummy_prefix(text) + text, num_unsettled_bytes


def find_section_heal_point(encoder: TextEncoder, text: str, num_unsettled_bytes: int = 0) -> HealPoint:
    """Like `find_heal_point`, for text inside a prompt: as it is, without normalizer and dummy prefix.

    Its last `num_unsettled_bytes` may change if more text follows.
    """
    point = find_tail_heal_point(encoder, text, num_unsettled_bytes, is_beginning=True)
    assert point is not None, "nothing comes before the text"
    return point


def find_tail_heal_point(
    encoder: TextEncoder, text: str, num_unsettled_bytes: int, is_beginning: bool
) -> HealPoint | None:
    """Like `find_section_heal_point`, given only the end of a text. None if the text before it may matter."""
    if not text:
        return HealPoint((), b"", (Split(False, ()),)) if is_beginning else None
    whole = encoder.split(text)
    found = _find_open_tail(encoder, text, whole, is_beginning)
    if found is None:
        return None
    tail_start, splits = found
    tail = text.encode()[tail_start:]
    shared = [end for end in find_common([split.ends for split in splits]) if end <= len(tail) - num_unsettled_bytes]
    start = shared[-1] if shared else 0
    stable_ids = _encode_all(encoder, [piece.data for piece in whole if piece.end <= tail_start])
    point = HealPoint(
        kept_ids=stable_ids + encode_pieces(encoder, tail, shared),
        healed=tail[start:],
        splits=_move(splits, len(shared), start),
        num_unsettled_bytes=num_unsettled_bytes,
        num_stable_bytes=tail_start,
        num_stable_ids=len(stable_ids),
    )
    return _shorten(encoder, point)


def _move(splits: Iterable[Split], num_shared: int, start: int) -> tuple[Split, ...]:
    """The splits without their shared boundaries, counted from `start`."""
    return tuple(sorted({Split(opens, tuple([end - start for end in ends[num_shared:]])) for opens, ends in splits}))


def _find_open_tail(
    encoder: TextEncoder, text: str, whole: list[PreToken], is_beginning: bool
) -> tuple[int, set[Split]] | None:
    """Where the shortest tail begins that decides the heal point, and how it may be split. Offsets are in bytes.

    It is settled if all continuations share a boundary inside it, and if it is split in the same way as in the whole
    text, so that nothing before it matters. None if that would take more than the text, which is no beginning.
    """
    data = text.encode()
    openings = encoder.find_openings(text)
    num_pre_tokens = _NUM_TAIL_PRE_TOKENS
    while True:
        anchor = _find_anchor(whole, num_pre_tokens, data)
        if not anchor and not is_beginning:
            return None
        start = whole[anchor - 1].end if anchor else 0
        tail_text = data[start:].decode()
        if not anchor or max(openings, default=0) <= len(tail_text):
            splits = _find_splits(encoder, tail_text, openings)
            ends = [start + piece.end for piece in encoder.split(tail_text)]
            if not anchor or (
                find_common([split.ends for split in splits]) and ends == [piece.end for piece in whole[anchor:]]
            ):
                return start, splits
        num_pre_tokens *= _TAIL_GROWTH


def _find_anchor(pre_tokens: list[PreToken], num_pre_tokens: int, data: bytes) -> int:
    """How many of the first pre-tokens are before the tail, which has about `num_pre_tokens` and begins a character."""
    anchor = _skip_blanks(pre_tokens, len(pre_tokens), num_pre_tokens)
    anchor = _skip_blanks(pre_tokens, max(anchor - num_pre_tokens, 0), num_pre_tokens)
    while anchor and data[pre_tokens[anchor - 1].end] & 0xC0 == 0x80:
        anchor -= 1
    return anchor


def _skip_blanks(pre_tokens: list[PreToken], anchor: int, limit: int) -> int:
    """Goes back over blanks, but not over a long run of which each is a pre-token by itself."""
    first = max(anchor - limit, 0)
    while anchor > first and pre_tokens[anchor - 1].data.decode(errors="replace").isspace():
        anchor -= 1
    return anchor


def _find_splits(encoder: TextEncoder, text: str, openings: list[int]) -> set[Split]:
    """How the text is split before each of the continuations, and before an added text at each of the openings."""
    num_bytes = len(text.encode())
    before_openings = [encoder.split(text[: len(text) - num_chars]) for num_chars in openings]
    splits = {(True, tuple([piece.end for piece in pre_tokens])) for pre_tokens in before_openings}
    for probe in _PROBES:
        pre_tokens = encoder.split(text + probe)
        ends = tuple([piece.end for piece in pre_tokens if piece.end <= num_bytes])
        goes_beyond = bool(openings and num_bytes) and (not ends or ends[-1] < num_bytes)
        splits.add((goes_beyond and encoder.is_added_text(pre_tokens[len(ends)].data), ends))
    return {Split(*split) for split in splits}


def encode_text(encoder: TextEncoder, text: str) -> tuple[int, ...]:
    """The canonical tokens of the text, unhealed."""
    return encode_literally(encoder, prepare_text(encoder, text)[0]) if text else ()


def encode_section(encoder: TextEncoder, text: str) -> tuple[int, ...]:
    """Like `encode_text`, for text inside a prompt, which gets no dummy prefix."""
    return encode_literally(encoder, encoder.replace_unspelled(encoder.normalize(text)))


def encode_literally(encoder: TextEncoder, text: str) -> tuple[int, ...]:
    """The tokens that spell exactly this text, without normalizer and dummy prefix."""
    return _encode_all(encoder, [piece.data for piece in encoder.split(text)])


def encode_pieces(encoder: TextEncoder, data: bytes, ends: Sequence[int]) -> tuple[int, ...]:
    """The tokens of the pre-tokens in `data` that end at `ends`."""
    return _encode_all(encoder, [data[start:end] for start, end in pairwise((0, *ends))])


def _encode_all(encoder: TextEncoder, pre_tokens: list[bytes]) -> tuple[int, ...]:
    return tuple(chain.from_iterable(map(encoder.encode, pre_tokens)))


def _shorten(encoder: TextEncoder, point: HealPoint) -> HealPoint:
    """Moves the heal point into a very long open pre-token, to a position before which its tokens no longer change.

    If the splits differ before that position, the boundaries of the text without a continuation are used.
    Only in this case is the heal point inexact. The tree stays small.
    """
    if len(point.healed) <= _MAX_HEALED_BYTES:
        return point
    if point.healed[0] & 0xC0 == 0x80:  # inside a character: it cannot be split by itself
        ends = max(split.ends for split in point.splits if not split.opens_added_text)
    else:
        ends = tuple(accumulate(len(piece.data) for piece in encoder.split(point.healed.decode())))
    last_cut = len(point.healed) - 2 * _REACH_BYTES
    for cut in range(last_cut, max(last_cut - _REACH_BYTES, 0), -1):
        begins_character = point.healed[cut] & 0xC0 != 0x80
        if begins_character and (shortened := _cut_at(encoder, point, ends, cut)) is not None:
            return shortened
    return point


def _cut_at(encoder: TextEncoder, point: HealPoint, ends: tuple[int, ...], cut: int) -> HealPoint | None:
    """The heal point moved to `cut`, or None if `cut` is not a token boundary in every continuation."""
    healed = point.healed
    complete = tuple([end for end in ends if end < cut])
    splits = _find_after(point.splits, complete, cut)
    plain = [split.ends for split in splits if not split.opens_added_text]
    start = complete[-1] if complete else 0
    stem, following = encoder.encode_beginning(healed[start:cut]), encoder.encode_beginning(healed[cut:])
    if not plain or encoder.encode_beginning(healed[start:]) != stem + following:
        return None
    ends_to_try = {*range(len(healed) - _REACH_BYTES, len(healed)), *chain.from_iterable(plain)}
    if any(encoder.encode_beginning(healed[cut:end])[:1] != following[:1] for end in ends_to_try if end > cut):
        return None
    return replace(
        point,
        kept_ids=(*point.kept_ids, *encode_pieces(encoder, healed, complete), *stem),
        healed=healed[cut:],
        splits=_move(splits, 0, cut),
    )


def _find_after(splits: Iterable[Split], complete: tuple[int, ...], cut: int) -> list[Split]:
    """Those of the splits that are equal to `complete` before `cut`, with their boundaries after it."""
    same = [split for split in splits if tuple([end for end in split.ends if end < cut]) == complete]
    after = [Split(opens, tuple([end for end in ends if end > cut])) for opens, ends in same]
    return [split for split in after if split.ends or not split.opens_added_text]


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The beginning of a tenant's text. In each text that begins so, the first `num_settled` characters are settled."""

    tenant: str
    text: str
    num_settled: int
    num_settled_bytes: int
    settled_ids: tuple[int, ...]  # their tokens


class HealPointCache:
    """Finds heal points, and remembers beginnings of the texts. Not thread-safe."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._beginnings: list[_Beginning] = []  # oldest first

    def heal(self, text: str, tenant: str = "") -> HealPoint:
        """The heal point of a text. Tenants share no remembered texts."""
        text, num_unsettled_bytes = prepare_text(self._encoder, text)
        longest = next(self._iter_beginnings(text, tenant))
        if len(text) - longest.num_settled > _MAX_AGAIN:
            self._settle(text[:-_DISTANCE], tenant)
        return self._heal(text, tenant, num_unsettled_bytes)[1]

    def _iter_beginnings(self, text: str, tenant: str) -> Iterator[_Beginning]:
        """What is remembered of the beginning of the text, from the longest to nothing."""
        known = [each for each in self._beginnings if each.tenant == tenant and text.startswith(each.text)]
        yield from sorted(known, key=lambda each: each.num_settled, reverse=True)
        yield _Beginning(tenant, "", 0, 0, ())

    def _settle(self, text: str, tenant: str) -> None:
        """Remembers the text, which is the beginning of another one."""
        before, point = self._heal(text, tenant, 0)
        added = text.encode()[before.num_settled_bytes : point.num_stable_bytes].decode()
        beginning = _Beginning(
            tenant,
            text,
            before.num_settled + len(added),
            point.num_stable_bytes,
            point.kept_ids[: point.num_stable_ids],
        )
        self._beginnings = [*self._beginnings[1 - _MAX_BEGINNINGS :], beginning]

    def _heal(self, text: str, tenant: str, num_unsettled_bytes: int) -> tuple[_Beginning, HealPoint]:
        """The heal point of the text, and the beginning after which it was found."""
        for known in self._iter_beginnings(text, tenant):
            end = text[known.num_settled :]
            point = find_tail_heal_point(self._encoder, end, num_unsettled_bytes, is_beginning=not known.num_settled)
            if point is not None:
                break
        assert point is not None, "the last of them is the start of the text"
        return known, replace(
            point,
            kept_ids=known.settled_ids + point.kept_ids,
            num_stable_bytes=known.num_settled_bytes + point.num_stable_bytes,
            num_stable_ids=len(known.settled_ids) + point.num_stable_ids,
        )
