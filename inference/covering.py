"""The covering of the healed bytes: every way in which the model's tokens can begin to spell them.

Naive form (Vieira et al. 2025, section 3.1): all token strings whose bytes reach the end of the
healed bytes and whose last token is the first to do so. There are exponentially many.

1. Only canonical strings carry mass in a model that was trained on canonical ones: those that the
   tokenizer itself makes of the healed bytes and something after them.
2. Such a string ends with one token that leaves the healed bytes, begun at some offset `j`. Before
   it stand the tokens of the first `j` bytes, since the beginning of a canonical string inside a
   pre-token is itself canonical. So there is one path for each offset, and one for each way in
   which the pre-tokens may end (the heal point's layouts).
3. Paths share their beginnings: together they are a small tree, and one forward pass gives the
   next-token distribution at each of its nodes.
"""

from dataclasses import dataclass
from enum import Enum, auto

from inference.healing import HealPoint
from inference.text_encoder import TextEncoder
from inference.tree import TokenTree, TreeBuilder
from trie_cache.trie import Trie


class Rule(Enum):
    """Which tokens may follow where healed bytes are left to spell."""

    EXTEND = auto()  # those that start with the rest
    SPELL = auto()  # those, and those that the rest starts with


@dataclass(frozen=True, slots=True)
class Exit:
    """A node that the next token may follow, and the healed bytes that are left to it."""

    node: int | None
    rest: bytes  # empty: any token, the end token too
    rule: Rule = Rule.EXTEND


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
    for layout in heal_point.layouts:
        closed = _encode_closed(encoder, heal_point.healed, layout)
        start = layout[-1] if layout else 0
        for offset in range(start, len(heal_point.healed) + 1):
            rest = heal_point.healed[offset:]
            interval = trie.find_interval(rest)
            if rest and interval.lo == interval.hi:
                continue
            opening = encoder.encode_opening(heal_point.healed[start:offset])
            exits[Exit(branches.add_path(closed + opening), rest)] = None
        whole = encoder.encode(heal_point.healed[start:].decode())  # if the pre-token ends with the healed bytes
        exits[Exit(branches.add_path(closed + whole), b"")] = None
    return Covering(branches, tuple(exits))


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
