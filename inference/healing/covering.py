"""The covering of the healed bytes: the token strings that spell them and go beyond them.

Naive form (after Vieira et al. 2025, section 3.1): all token strings whose last token is the first to
go beyond the healed bytes. Their number is exponential.

1. A model trained on canonical token strings gives little mass to others. So follow only the strings
   that the tokenizer itself makes of the healed bytes and any continuation.
2. Exactly one token of such a string crosses the end of the healed bytes. It begins at some offset `j`,
   after the tokens of the first `j` bytes: inside a pre-token, a beginning of a canonical string is
   canonical too. So there is one path for each offset in each split.
3. Paths share their beginnings, so together they are a small tree. One forward pass gives the
   next-token distribution at each of its nodes.
4. The tokens that all paths begin with are certain. They are left out of the tree: they belong to the kept tokens, and
   the healed bytes begin after them, perhaps inside a word or a character. This changes no probability.

The crossing token may be non-canonical after its path. This is not checked, because the model gives
such a token little mass. No token string is counted twice: a token that ends exactly where the healed
bytes end does not cross their end. It belongs to the longer path that it completes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from inference.healing.heal_point import HealPoint, Split, encode_pieces
from inference.healing.text_encoder import TextEncoder
from inference.healing.token_tree import TokenTree, TreeBuilder, find_common
from trie_cache.trie import Interval, Trie


class Rule(Enum):
    """The tokens that may follow a node while bytes remain to be spelled."""

    CROSS = auto()  # tokens that start with the remaining bytes and go beyond them
    EXTEND = auto()  # tokens that start with the remaining bytes
    SPELL = auto()  # these, and tokens that the remaining bytes start with


@dataclass(frozen=True, slots=True)
class Crossing:
    """A node that the next token may follow, and the healed bytes that remain for this token."""

    node: int | None
    remaining_bytes: bytes  # empty: any token may follow, including the end token
    rule: Rule


@dataclass(frozen=True, slots=True)
class CoveringTree:
    """The covering: branches below the kept tokens, and the nodes that the next token may follow."""

    tree: TokenTree  # without a chain: its branches stand below the last of the kept tokens
    crossings: tuple[Crossing, ...]
    common_ids: tuple[int, ...] = ()  # the tokens that all paths begin with: the last of the kept tokens
    num_common_bytes: int = 0  # the number of bytes that they spell, the first of the healed bytes


def build_covering(encoder: TextEncoder, trie: Trie, heal_point: HealPoint) -> CoveringTree:
    """The canonical covering of the healed bytes, as a tree after the kept tokens and the common ones."""
    paths = build_canonical_paths(encoder, trie, heal_point)
    common_ids = find_common([*paths, *_build_settled_paths(encoder, trie, heal_point)])
    branches = TreeBuilder()
    crossings: dict[Crossing, None] = {}
    for path, remaining_bytes in paths.items():
        crossings[Crossing(branches.add_path(path[len(common_ids) :]), remaining_bytes, Rule.CROSS)] = None
    return CoveringTree(branches.build(()), tuple(crossings), common_ids, sum(map(len, map(trie.spell, common_ids))))


def _build_settled_paths(encoder: TextEncoder, trie: Trie, heal_point: HealPoint) -> Iterable[tuple[int, ...]]:
    """Returns the paths for the bytes whose normalization is final; none if that of every byte is."""
    if not heal_point.num_unsettled_bytes:
        return ()
    settled = heal_point.healed[: -heal_point.num_unsettled_bytes]
    splits = {Split(opens, tuple([end for end in ends if end <= len(settled)])) for opens, ends in heal_point.splits}
    return build_canonical_paths(encoder, trie, replace(heal_point, healed=settled, splits=tuple(splits)))


def build_canonical_paths(
    encoder: TextEncoder, trie: Trie, heal_point: HealPoint, unfinished: bytes = b""
) -> dict[tuple[int, ...], bytes]:
    """The paths after the kept tokens, each with the bytes that remain for the next token.

    `unfinished`: the first bytes of an incomplete character after the healed bytes. The character may belong to the
    open pre-token or begin a new one.
    """
    paths: dict[tuple[int, ...], bytes] = {}
    for opens_added_text, ends in heal_point.splits:
        complete = encode_pieces(encoder, heal_point.healed, ends)
        last = heal_point.healed[ends[-1] if ends else 0 :]  # of the open pre-token
        if not opens_added_text:
            paths |= _build_open_paths(encoder, trie, complete, last + unfinished)
            paths |= _build_open_paths(encoder, trie, complete + encoder.encode(last), unfinished)  # may end here
        elif find_crossing_interval(trie, last + unfinished).num_tokens:  # one token for all of the added text
            paths[complete] = last + unfinished
    return paths


def _build_open_paths(
    encoder: TextEncoder, trie: Trie, complete: tuple[int, ...], beginning: bytes
) -> dict[tuple[int, ...], bytes]:
    """One path for each offset in an open pre-token where a token that goes beyond it can begin."""
    first = max(len(beginning) - trie.max_token_bytes, 0)  # before it, more bytes remain than any token has
    return {
        complete + encoder.encode_beginning(beginning[:offset]): beginning[offset:]
        for offset in range(first, len(beginning) + 1)
        if find_crossing_interval(trie, beginning[offset:]).num_tokens
    }


def find_crossing_interval(trie: Trie, remaining_bytes: bytes) -> Interval:
    """The tokens that start with `remaining_bytes` and go beyond them; all tokens for `b""`."""
    lo, hi = trie.find_interval(remaining_bytes)
    return (
        Interval(trie.find_interval(remaining_bytes + b"\x00").lo, hi)
        if remaining_bytes and lo < hi
        else Interval(lo, hi)
    )


def find_allowed(trie: Trie, crossing: Crossing) -> tuple[Interval, tuple[int, ...]]:
    """The tokens that may follow a crossing with remaining bytes: an interval, and the ids of those beside it."""
    remaining_bytes = crossing.remaining_bytes
    match crossing.rule:
        case Rule.CROSS:
            return find_crossing_interval(trie, remaining_bytes), ()
        case Rule.EXTEND:
            return trie.find_interval(remaining_bytes), ()
        case Rule.SPELL:
            return trie.find_interval(remaining_bytes), trie.find_ancestors(remaining_bytes)


def build_root_covering(remaining_bytes: bytes, rule: Rule) -> CoveringTree:
    """A covering without branches: the next token follows the kept tokens directly, under `rule`."""
    return CoveringTree(TokenTree(()), (Crossing(None, remaining_bytes, rule),))
