"""A covering tree beside the tokens of a finished text."""

from collections.abc import Iterator
from dataclasses import replace

from inference.healing.covering import CoveringTree, build_covering
from inference.healing.heal_point import HealPoint, find_heal_point
from tests.support.toys import ToyTokenizer

Member = tuple[tuple[int, ...], int | None]  # a path and the token after it; None if the text ends


def build_after_common(toy: ToyTokenizer, text: str) -> tuple[HealPoint, CoveringTree]:
    """Returns the covering tree, and the heal point that it begins at: that of the text, or after the common tokens."""
    point = find_heal_point(toy.encoder, text)
    covering = build_covering(toy.encoder, toy.trie, point)
    kept_ids, healed = point.kept_ids + covering.common_ids, point.healed[covering.num_common_bytes :]
    return replace(point, kept_ids=kept_ids, healed=healed, splits=()), covering


def find_member(toy: ToyTokenizer, point: HealPoint, ids: tuple[int, ...]) -> Member:
    """Returns the finished text's tokens after the kept ones, up to the first that goes beyond the healed bytes."""
    ids = ids[len(point.kept_ids) :]
    for num_ids, token_id in enumerate(ids):
        if len(toy.join(ids[: num_ids + 1])) > len(point.healed):
            return ids[:num_ids], token_id
    return ids, None


def iter_paths(covering: CoveringTree) -> Iterator[tuple[int, ...]]:
    """Yields the path of each crossing."""
    tree = covering.tree.with_chain((0,))
    for crossing in covering.crossings:
        yield tuple(tree.branch_ids[branch] for branch in tree.find_path(crossing.node))


def allows(toy: ToyTokenizer, covering: CoveringTree, member: Member) -> bool:
    """True if exactly one crossing has the path, and the token goes beyond its remaining bytes."""
    path, token_id = member
    remaining = [
        crossing.remaining_bytes
        for crossing, other in zip(covering.crossings, iter_paths(covering), strict=True)
        if other == path
    ]
    if token_id is None:
        return remaining == [b""]
    token = toy.vocabulary.token_bytes[token_id]
    return len(remaining) == 1 and token.startswith(remaining[0]) and token != remaining[0]
