"""The covering of the healed bytes: the token strings that spell them and go beyond them.

Naive form (after Vieira et al. 2025, section 3.1): all token strings whose last token is the first to
go beyond the healed bytes. There are exponentially many.

1. Only canonical strings have mass in a model that was trained on canonical ones: those that the
   tokenizer itself makes of the healed bytes and something after them.
2. Such a string crosses the end of the healed bytes with one token, which begins at some offset `j`.
   Before it stand the tokens of the first `j` bytes, since the beginning of a canonical string inside
   a pre-token is itself canonical. So there is one path for each offset in each boundary set.
3. Paths share their beginnings: together they are a small tree, and one forward pass gives the
   next-token distribution at each of its nodes.

Whether the crossing token is canonical after its path is not checked: the model gives it little mass
if not. No token string is counted twice: a token that ends exactly with the healed bytes does not
cross their end, and belongs to the path that it completes.
"""

from dataclasses import dataclass
from enum import Enum, auto

from inference.healing.heal_point import HealPoint
from inference.healing.text_encoder import TextEncoder
from inference.healing.token_tree import TokenTree, TreeBuilder
from trie_cache.trie import Interval, Trie


class Rule(Enum):
    """Which tokens may follow a node while bytes remain to be spelled."""

    LEAVE = auto()  # those that start with the remaining bytes and go beyond them
    EXTEND = auto()  # those that start with the remaining bytes
    SPELL = auto()  # those, and those that the remaining bytes start with


@dataclass(frozen=True, slots=True)
class Crossing:
    """A node that the next token may follow, and the healed bytes that this token has to spell."""

    node: int | None
    remaining_bytes: bytes  # empty: any token, the end token too
    rule: Rule


@dataclass(frozen=True, slots=True)
class CoveringTree:
    """The covering as branches below the kept tokens, and the nodes that the next token may follow."""

    branches: TreeBuilder
    crossings: tuple[Crossing, ...]

    def build_tree(self, chain_ids: tuple[int, ...]) -> TokenTree:
        """The token tree of the kept tokens `chain_ids` and the branches."""
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
    """The paths after the kept tokens, each with the bytes that remain for the token after it.

    `unfinished` are the first bytes of a character after the healed bytes. The character may belong to the open
    pre-token, or begin a new one.
    """
    paths: dict[tuple[int, ...], bytes] = {}
    for boundaries in heal_point.boundary_sets:
        complete = _encode_complete(encoder, heal_point.healed, boundaries)
        last = heal_point.healed[boundaries[-1] if boundaries else 0 :]  # of the open pre-token
        paths |= _find_open_paths(encoder, trie, complete, last + unfinished)
        whole = complete + encoder.encode(last.decode())  # the pre-token may end here too
        paths |= _find_open_paths(encoder, trie, whole, unfinished)
    return paths


def _find_open_paths(
    encoder: TextEncoder, trie: Trie, complete: tuple[int, ...], beginning: bytes
) -> dict[tuple[int, ...], bytes]:
    """One path for each offset in an open pre-token at which a token can begin that goes beyond it."""
    return {
        complete + encoder.encode_beginning(beginning[:offset]): beginning[offset:]
        for offset in range(len(beginning) + 1)
        if find_leaving(trie, beginning[offset:]).num_tokens
    }


def find_leaving(trie: Trie, remaining_bytes: bytes) -> Interval:
    """The tokens that start with `remaining_bytes` and go beyond them; all tokens for `b""`."""
    lo, hi = trie.find_interval(remaining_bytes)
    return (
        Interval(trie.find_interval(remaining_bytes + b"\x00").lo, hi)
        if remaining_bytes and lo < hi
        else Interval(lo, hi)
    )


def build_root_covering(remaining_bytes: bytes, rule: Rule) -> CoveringTree:
    """A covering without branches: the next token follows the kept tokens, under `rule`."""
    return CoveringTree(TreeBuilder(), (Crossing(None, remaining_bytes, rule),))


def _encode_complete(encoder: TextEncoder, healed: bytes, boundaries: tuple[int, ...]) -> tuple[int, ...]:
    starts = (0, *boundaries)
    return tuple(
        token_id
        for start, end in zip(starts, boundaries, strict=False)
        for token_id in encoder.encode(healed[start:end].decode())
    )
