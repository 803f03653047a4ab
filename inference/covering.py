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

from inference.healing import HealPoint
from inference.text_encoder import TextEncoder
from inference.tree import TokenTree, TreeBuilder
from trie_cache.trie import Interval, Trie


class Rule(Enum):
    """Which tokens may follow where healed bytes are left to spell."""

    LEAVE = auto()  # those that start with the rest and go on
    EXTEND = auto()  # those that start with the rest
    SPELL = auto()  # those, and those that the rest starts with


@dataclass(frozen=True, slots=True)
class Exit:
    """A node that the next token may follow, and the healed bytes that are left to it."""

    node: int | None
    rest: bytes  # empty: any token, the end token too
    rule: Rule


@dataclass(frozen=True, slots=True)
class Covering:
    """Branches to forward beside the kept tokens, and where the next token may leave them."""

    branches: TreeBuilder
    exits: tuple[Exit, ...]

    def build_tree(self, chain_ids: tuple[int, ...]) -> TokenTree:
        """The covering below the kept tokens `chain_ids`."""
        return self.branches.build(chain_ids)


def build_covering(encoder: TextEncoder, trie: Trie, heal_point: HealPoint) -> Covering:
    """The canonical covering of the healed bytes, as a tree."""
    branches = TreeBuilder()
    exits: dict[Exit, None] = {}
    for path, rest in find_canonical_paths(encoder, trie, heal_point).items():
        exits[Exit(branches.add_path(path), rest, Rule.LEAVE)] = None
    return Covering(branches, tuple(exits))


def find_canonical_paths(
    encoder: TextEncoder, trie: Trie, heal_point: HealPoint, unfinished: bytes = b""
) -> dict[tuple[int, ...], bytes]:
    """The paths below the kept tokens, each with the bytes that are left to the token that follows it.

    `unfinished` is the beginning of a character that stands behind the healed bytes. It may go on with the open
    pre-token, or begin one of its own.
    """
    paths: dict[tuple[int, ...], bytes] = {}
    for layout in heal_point.layouts:
        closed = _encode_closed(encoder, heal_point.healed, layout)
        last = heal_point.healed[layout[-1] if layout else 0 :]  # of the pre-token that is open
        paths |= _find_opening_paths(encoder, trie, closed, last + unfinished)
        whole = closed + encoder.encode(last.decode())  # the pre-token may end here too
        paths |= _find_opening_paths(encoder, trie, whole, unfinished)
    return paths


def _find_opening_paths(
    encoder: TextEncoder, trie: Trie, closed: tuple[int, ...], opening: bytes
) -> dict[tuple[int, ...], bytes]:
    """One path for each offset in an open pre-token where a token that goes beyond it can begin."""
    return {
        closed + encoder.encode_opening(opening[:offset]): opening[offset:]
        for offset in range(len(opening) + 1)
        if find_leaving(trie, opening[offset:]).num_tokens
    }


def find_leaving(trie: Trie, rest: bytes) -> Interval:
    """The tokens that start with `rest` and go on; all of them for `b""`."""
    lo, hi = trie.find_interval(rest)
    return Interval(trie.find_interval(rest + b"\x00").lo, hi) if rest and lo < hi else Interval(lo, hi)


def build_root_covering(rest: bytes, rule: Rule) -> Covering:
    """No branches: the next token follows the kept tokens, bound by `rest`."""
    return Covering(TreeBuilder(), (Exit(None, rest, rule),))


def _encode_closed(encoder: TextEncoder, healed: bytes, layout: tuple[int, ...]) -> tuple[int, ...]:
    starts = (0, *layout)
    return tuple(
        token_id
        for start, end in zip(starts, layout, strict=False)
        for token_id in encoder.encode(healed[start:end].decode())
    )
