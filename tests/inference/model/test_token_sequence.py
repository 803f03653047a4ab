"""What stands beside a sequence, against plain forward passes over the tokens before it."""

from functools import cache

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from inference.healing.token_tree import TokenTree, TreeBuilder
from inference.model import token_sequence
from inference.model.language_model import SequencePart
from inference.model.pytorch.model import TorchModel
from inference.model.sampler import LogitRow
from inference.model.token_sequence import TokenSequence
from tests.support.runners import build_torch
from tests.support.tiny_families import KV, build_config, build_model
from tests.support.toys import toy_tokenizer

_WORDS = st.lists(st.integers(1, 3), min_size=1, max_size=7).map(tuple)  # few tokens, so that much is met again


@cache
def _build_model() -> TorchModel:
    toy = toy_tokenizer("qwen")
    config = build_config("llama", KV)
    config.vocab_size = toy.num_rows
    torch.manual_seed(0)
    return build_torch(build_model(config).double())


@cache
def _read_plainly(token_ids: tuple[int, ...]) -> torch.Tensor:
    """The logits after the tokens, from a pass over all of them."""
    model = _build_model()
    [[row]] = model.forward([SequencePart(model.new_cache(), TokenTree(token_ids))])
    logits: torch.Tensor = row.logits
    return logits


def _build_tree(paths: list[tuple[int, ...]]) -> TokenTree:
    builder = TreeBuilder()
    for path in paths:
        builder.add_path(path)
    return builder.build(())


_TREES = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple), min_size=1, max_size=4).map(
    _build_tree
)


class TokenSequences(RuleBasedStateMachine):
    """Reads contexts and trees, goes back, copies, and forgets. A plain pass over the same tokens is the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.model = _build_model()
        self.sequence = TokenSequence(self.model.new_cache(4))
        self.others: list[tuple[TokenSequence, tuple[int, ...]]] = []

    @initialize(word=_WORDS)
    def read_first(self, word: tuple[int, ...]) -> None:
        self._read(TokenTree(word))

    @rule(num_kept=st.integers(0, 40), word=_WORDS, tree=_TREES)
    def begin(self, num_kept: int, word: tuple[int, ...], tree: TokenTree) -> None:
        context = (*self.sequence.token_ids[:num_kept], *word)

        unread = self.sequence.reuse(context)

        assert (*self.sequence.token_ids, *unread) == context
        if unread:
            self._read(TokenTree(unread, tree.branch_ids, tree.parents))

    @rule(word=_WORDS)
    def append_known(self, word: tuple[int, ...]) -> None:
        before = tuple(self.sequence.token_ids)

        unread = self.sequence.append_known(word)

        assert (*self.sequence.token_ids, *unread) == before + word

    @precondition(lambda self: self.sequence.num_tokens)
    @rule(tree=_TREES, data=st.data())
    def read_branches(self, tree: TokenTree, data: st.DataObject) -> None:
        """Reads some branches that are not known, with all above them that are not known either."""
        rows = self.sequence.recall_rows(tree)[1:]
        unread = [branch for branch, row in enumerate(rows) if row is None]
        if not unread:
            return
        chosen = data.draw(st.sets(st.sampled_from(unread), min_size=1))
        wanted = sorted({each for branch in chosen for each in tree.iter_path(branch) if rows[each] is None})
        part = self.sequence.build_part(tree, wanted)
        assert part.tree.chain_ids == ()
        assert all(parent is None or parent < branch for branch, parent in enumerate(part.tree.parents))

        self._forward(part)

        known = self.sequence.recall_rows(tree)[1:]
        assert all(known[branch] is not None for branch in wanted)

    @rule(num_kept=st.integers(0, 40))
    def cut(self, num_kept: int) -> None:
        self.sequence.cut(min(num_kept, self.sequence.num_tokens))

    @rule()
    def drop_rows(self) -> None:
        self.sequence.drop_rows()

    @rule(num_kept=st.none() | st.integers(0, 40), takes_copy=st.booleans())
    def fork(self, num_kept: int | None, takes_copy: bool) -> None:
        num_tokens = None if num_kept is None else min(num_kept, self.sequence.num_tokens)
        copy = self.sequence.fork(num_tokens)
        assert copy.token_ids == self.sequence.token_ids[:num_tokens]
        other = self.sequence if takes_copy else copy
        self.others = [*self.others[-2:], (other, tuple(other.token_ids))]
        self.sequence = copy if takes_copy else self.sequence

    @rule(data=st.data())
    def take_another(self, data: st.DataObject) -> None:
        if self.others:
            index = data.draw(st.integers(0, len(self.others) - 1))
            other, _ = self.others[index]
            self.others[index] = (self.sequence, tuple(self.sequence.token_ids))
            self.sequence = other

    @invariant()
    def tokens_and_cache_agree(self) -> None:
        assert self.sequence.cache.num_tokens == self.sequence.num_tokens
        for other, token_ids in self.others:
            assert tuple(other.token_ids) == token_ids
            assert other.cache.num_tokens == len(token_ids)

    @invariant()
    def the_cache_has_the_keys_and_values_of_its_tokens(self) -> None:
        """The next token's logits are those of a plain pass. The sequence does not change."""
        if self.sequence.num_tokens:
            tree = TokenTree((5,))
            [[row]] = self.model.forward([SequencePart(self.sequence.cache, tree)])
            _assert_row(row, (*self.sequence.token_ids, 5))

    @invariant()
    def known_rows_are_those_of_a_plain_pass(self) -> None:
        tree = _build_tree([(1, 1), (1, 2), (2, 3, 1), (3,)])
        for sequence in (self.sequence, *(other for other, _ in self.others)):
            before = tuple(sequence.token_ids)
            for node, row in zip((None, *range(len(tree.branch_ids))), sequence.recall_rows(tree), strict=True):
                if row is not None:
                    path = tuple(tree.branch_ids[branch] for branch in tree.find_path(node))
                    _assert_row(row, before + path)

    def _read(self, tree: TokenTree) -> None:
        self._forward(SequencePart(self.sequence.cache, tree))
        assert None not in self.sequence.recall_rows(TokenTree((), tree.branch_ids, tree.parents))

    def _forward(self, part: SequencePart) -> None:
        self.sequence.absorb(part, self.model.forward([part])[0])


def _assert_row(row: LogitRow, token_ids: tuple[int, ...]) -> None:
    torch.testing.assert_close(torch.from_numpy(row.to_host()), _read_plainly(token_ids), rtol=0, atol=1e-5)


@pytest.mark.parametrize("max_nodes", [5, 256])
def test_what_is_known_equals_a_plain_pass_after_any_steps(max_nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The anchor moves after a few tokens."""
    for name, value in (("_MAX_ANCHOR_DISTANCE", 6), ("_MIN_ANCHOR_DISTANCE", 2), ("_MAX_NODES", max_nodes)):
        monkeypatch.setattr(token_sequence, name, value)

    run_state_machine_as_test(
        TokenSequences, settings=settings(stateful_step_count=25, max_examples=settings().max_examples // 2)
    )


@pytest.fixture
def sequence() -> TokenSequence:
    return TokenSequence(_build_model().new_cache(8))


def _absorb(sequence: TokenSequence, part: SequencePart) -> None:
    sequence.absorb(part, _build_model().forward([part])[0])


def test_the_least_recently_used_nodes_are_dropped(sequence: TokenSequence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_sequence, "_MAX_NODES", 3)
    _absorb(sequence, SequencePart(sequence.cache, TokenTree((1,), (2, 3, 4), (None, None, None))))
    for token_id in (5, 6, 7, 8):
        sequence.recall_rows(_build_tree([(2,)]))
        _absorb(sequence, sequence.build_part(_build_tree([(token_id,)]), (0,)))

    rows = sequence.recall_rows(_build_tree([(token_id,) for token_id in range(2, 9)]))[1:]

    assert [row is not None for row in rows] == [True, False, False, False, False, True, True]


def test_the_bytes_are_those_of_the_cache_and_of_what_stands_beside_it_and_a_copy_keeps_its_own(
    sequence: TokenSequence,
) -> None:
    _absorb(sequence, SequencePart(sequence.cache, TokenTree((1, 1), (2, 3), (None, 0))))
    row_bytes = 4 * toy_tokenizer("qwen").num_rows
    token_bytes = sequence.cache.nbytes // sequence.cache.capacity

    assert sequence.nbytes == sequence.cache.nbytes + 3 * row_bytes + 2 * token_bytes
    copy = sequence.fork()
    sequence.drop_rows()
    assert sequence.nbytes == sequence.cache.nbytes + 2 * token_bytes
    assert copy.nbytes == copy.cache.nbytes + 3 * row_bytes + 2 * token_bytes
