"""What stands beside a sequence, against plain forward passes over the tokens before it."""

from functools import cache

import pytest
import torch

from inference.healing.token_tree import TokenTree, TreeBuilder
from inference.model import token_sequence
from inference.model.language_model import SequenceInput
from inference.model.pytorch.model import TorchModel
from inference.model.token_sequence import TokenSequence
from tests.support.runners import build_torch
from tests.support.tiny_families import KV, build_config, build_model
from tests.support.toys import toy_tokenizer


@cache
def _build_model() -> TorchModel:
    toy = toy_tokenizer("qwen")
    config = build_config("llama", KV)
    config.vocab_size = toy.num_rows
    torch.manual_seed(0)
    return build_torch(build_model(config).double())


def _build_tree(paths: list[tuple[int, ...]]) -> TokenTree:
    builder = TreeBuilder()
    for path in paths:
        builder.add_path(path)
    return builder.build(())


@pytest.fixture
def sequence() -> TokenSequence:
    return TokenSequence(_build_model().new_cache(8))


def _absorb(sequence: TokenSequence, part: SequenceInput) -> None:
    sequence.absorb(part, _build_model().forward([part])[0])


def test_the_least_recently_used_nodes_are_dropped(sequence: TokenSequence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_sequence, "_MAX_NODES", 3)
    _absorb(sequence, SequenceInput(sequence.cache, TokenTree((1,), (2, 3, 4), (None, None, None))))
    for token_id in (5, 6, 7, 8):
        sequence.recall_rows(_build_tree([(2,)]))
        _absorb(sequence, sequence.build_part(_build_tree([(token_id,)]), (0,)))

    rows = sequence.recall_rows(_build_tree([(token_id,) for token_id in range(2, 9)]))[1:]

    assert [row is not None for row in rows] == [True, False, False, False, False, True, True]


def test_the_bytes_are_those_of_the_cache_and_of_what_stands_beside_it_and_a_copy_keeps_its_own(
    sequence: TokenSequence,
) -> None:
    _absorb(sequence, SequenceInput(sequence.cache, TokenTree((1, 1), (2, 3), (None, 0))))
    row_bytes = 4 * toy_tokenizer("qwen").num_rows
    token_bytes = sequence.cache.nbytes // sequence.cache.capacity

    assert sequence.nbytes == sequence.cache.nbytes + 3 * row_bytes + 2 * token_bytes
    copy = sequence.fork()
    sequence.drop_rows()
    assert sequence.nbytes == sequence.cache.nbytes + 2 * token_bytes
    assert copy.nbytes == copy.cache.nbytes + 3 * row_bytes + 2 * token_bytes
