"""Runs a model as the engine does, and records what it answers after which tokens."""

from dataclasses import dataclass
from random import Random

import torch

from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part
from inference.model.pytorch.pool import TorchSequenceCache
from inference.model.pytorch.runner import Runner

_PARENTS = (None, 0, None, 2, 2)  # of the branches of each tree
_KEPT_NODES = (4, 1, None, 3)  # the nodes whose paths are kept, in turn
_PIECE = 23  # tokens of a long prompt that are prefilled in one pass


@dataclass(frozen=True, slots=True)
class Answer:
    """The logits that the product gives after some tokens."""

    stage: str
    token_ids: tuple[int, ...]
    logits: torch.Tensor  # [vocab_size] float32


@dataclass(slots=True)
class CachedSequence:
    """A sequence in the product's cache, and its tokens."""

    cache: TorchSequenceCache
    token_ids: tuple[int, ...] = ()

    def fork(self) -> "CachedSequence":
        """A copy, as for another candidate of the same request."""
        return CachedSequence(self.cache.fork(), self.token_ids)


@dataclass(frozen=True, slots=True)
class _Move:
    """A sequence's part in a forward pass, and the node whose path is kept."""

    sequence: CachedSequence
    tree: TokenTree
    kept_node: int | None
    wants_logits: bool = True


class PackedPasses:
    """Forwards several sequences of one model, and collects its answers."""

    def __init__(self, runner: Runner, text_ids: list[int]) -> None:
        """`text_ids`: the ids to draw from."""
        self._runner = runner
        self._text_ids = text_ids
        self._random = Random(0)
        self.answers: list[Answer] = []

    def start(self) -> CachedSequence:
        """An empty sequence."""
        return CachedSequence(self._runner.new_cache())

    def draw(self, count: int) -> tuple[int, ...]:
        """Random tokens."""
        return tuple(self._random.choices(self._text_ids, k=count))

    def read(self, stage: str, sequences: list[CachedSequence], texts: list[tuple[int, ...]]) -> None:
        """Forwards the texts in pieces, the sequences side by side, and records the answers after whole texts."""
        for start in range(0, max(len(text) for text in texts), _PIECE):
            end = start + _PIECE
            moves = [
                _Move(sequence, TokenTree(text[start:end]), None, wants_logits=end >= len(text))
                for sequence, text in zip(sequences, texts, strict=True)
                if start < len(text)
            ]
            self._forward(stage, moves)

    def grow(self, stage: str, sequences: list[CachedSequence]) -> None:
        """Forwards one token of each sequence with a tree, records the answers at all nodes, and keeps a path."""
        moves = []
        for index, sequence in enumerate(sequences):
            tree = TokenTree(self.draw(1), self.draw(len(_PARENTS)), _PARENTS)
            moves.append(_Move(sequence, tree, _KEPT_NODES[(index + len(sequence.token_ids)) % len(_KEPT_NODES)]))
        self._forward(stage, moves)

    def step(self, stage: str, sequences: list[CachedSequence]) -> None:
        """Forwards one token of each sequence."""
        self._forward(stage, [_Move(sequence, TokenTree(self.draw(1)), None) for sequence in sequences])

    def _forward(self, stage: str, moves: list[_Move]) -> None:
        parts = [Part(move.sequence.cache, move.tree, wants_logits=move.wants_logits) for move in moves]
        rows = iter(self._runner.forward(parts))
        for move in moves:
            before = move.sequence.token_ids + move.tree.chain_ids
            for node in (None, *range(len(move.tree.branch_ids))):
                if move.wants_logits:
                    self.answers.append(Answer(stage, before + _find_branch_ids(move.tree, node), next(rows)))
            move.sequence.cache.keep(move.tree, move.kept_node)
            move.sequence.token_ids = before + _find_branch_ids(move.tree, move.kept_node)


def _find_branch_ids(tree: TokenTree, node: int | None) -> tuple[int, ...]:
    return tuple(tree.branch_ids[branch] for branch in tree.find_path(node))
