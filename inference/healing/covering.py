"""The covering of the healed bytes: every way in which the model's tokens can begin to spell them.

Naive form (after Vieira et al. 2025, section 3.1): all token strings whose last token is the first to
go beyond the healed bytes. There are exponentially many.

1. Only canonical strings carry mass in a model that was trained on canonical ones: those that the
   tokenizer itself makes of the healed bytes and something after them.
2. Such a string leaves the healed bytes by one token, begun at some offset `j`. Before it stand the
   tokens of the first `j` bytes, since the beginning of a canonical string inside a pre-token is
   itself canonical. So there is one path for each offset, and one for each way in which the
   pre-tokens may end (the heal point's layouts).
3. Paths share their beginnings: together they are a small tree, and one forward pass gives the
   next-token distribution at each of its nodes.

Whether the leaving token is canonical after its path is not asked: the model says so itself. No
token string is counted twice: a token that ends with the healed bytes has not left them, and the
path that it ends is one of its own.
"""

from dataclasses import dataclass
from enum import Enum, auto

from inference.healing.heal_point import HealPoint
from inference.healing.text_encoder import TextEncoder
from inference.healing.token_tree import TokenTree, TreeBuilder
from trie_cache.trie import Interval, Trie


class Rule(Enum):
    """Which tokens may follow where healed bytes are left to spell."""

    LEAVE = auto()  # those that start with the rest and go on
    EXTEND = auto()  # those that start with the rest
    SPELL = auto()  # those, and those that the rest starts with


@dataclass(frozen=True, slots=True)
class Crossing:
    """A node that the next token may follow, and the healed bytes that are left to it."""

    node: int | None
    remaining_bytes: bytes  # empty: any token, the end token too
    rule: Rule


@dataclass(frozen=True, slots=True)
class CoveringTree:
    """Branches to forward beside the kept tokens, and where the next token may leave them."""

    branches: TreeBuilder
    crossings: tuple[Crossing, ...]

    def build_tree(self, chain_ids: tuple[int, ...]) -> TokenTree:
        """The covering below the kept tokens `chain_ids`."""
        return self.branches.build(chain_ids)


def build_covering(encoder: TextEncoder, trie: Trie, heal_point: HealPoint) -> CoveringTree:
    """The canonical covering of the healed bytes, as a tree."""
    branches = TreeBuilder()
    crossings: dict[Crossing, None] = {}
    for path, remaining_bytes in find_canonical_paths(encoder, trie, heal_point).items():
        crossings[Crossing(branches.add_path(path), remaining_bytes, Rule.LEAVE)] = None
    return CoveringTree(branches, tuple(crossings))


def find_canonical_paths(
    encoder: TextEncoder, trie: Trie, heal_point: HealPoint, unfinished: bytes = b""
) -> dict[tuple[int, ...], bytes]:
    """The paths below the kept tokens, each with the bytes that are left to the token that follows it.

    `unfinished` is the beginning of a character that stands behind the healed bytes. It may go on with the open
    pre-token, or begin one of its own.
    """
    paths: dict[tuple[int, ...], bytes] = {}
    for boundaries in heal_point.boundary_sets:
        complete = _encode_complete(encoder, heal_point.healed, boundaries)
        last = heal_point.healed[boundaries[-1] if boundaries else 0 :]  # of the pre-token that is open
        paths |= _find_open_paths(encoder, trie, complete, last + unfinished)
        whole = complete + encoder.encode(last.decode())  # the pre-token may end here too
        paths |= _find_open_paths(encoder, trie, whole, unfinished)
    return paths


def _find_open_paths(
    encoder: TextEncoder, trie: Trie, complete: tuple[int, ...], beginning: bytes
) -> dict[tuple[int, ...], bytes]:
    """One path for each offset in an open pre-token where a token that goes beyond it can begin."""
    return {
        complete + encoder.encode_beginning(beginning[:offset]): beginning[offset:]
        for offset in range(len(beginning) + 1)
        if find_leaving(trie, beginning[offset:]).num_tokens
    }


def find_leaving(trie: Trie, remaining_bytes: bytes) -> Interval:
    """The tokens that start with `remaining_bytes` and go on; all of them for `b""`."""
    lo, hi = trie.find_interval(remaining_bytes)
    return (
        Interval(trie.find_interval(remaining_bytes + b"\x00").lo, hi)
        if remaining_bytes and lo < hi
        else Interval(lo, hi)
    )


def build_root_covering(remaining_bytes: bytes, rule: Rule) -> CoveringTree:
    """No branches: the next token follows the kept tokens, bound by `remaining_bytes`."""
    return CoveringTree(TreeBuilder(), (Crossing(None, remaining_bytes, rule),))


def _encode_complete(encoder: TextEncoder, healed: bytes, boundaries: tuple[int, ...]) -> tuple[int, ...]:
    starts = (0, *boundaries)
    return tuple(
        token_id
        for start, end in zip(starts, boundaries, strict=False)
        for token_id in encoder.encode(healed[start:end].decode())
    )
