"""What the engine asks of every runner: the logits of each node's own path, whatever was kept, stored or cut before."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.errors import OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequencePart
from tests.support.decoder_folders import write_decoder
from tests.support.runners import RUNNERS, CheckedSequence, RunnerCase, load_runner, random_trees

_NUM_IDS = 4  # few, so that sequences have common beginnings
_TREE = TokenTree((3, 4, 5), (6, 7, 6, 8, 9), (None, 0, None, 2, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module", params=RUNNERS)
def runner(request: pytest.FixtureRequest, folder: Path) -> RunnerCase:
    return load_runner(request.param, folder)


@pytest.fixture(scope="module")
def new(runner: RunnerCase) -> Callable[[], CheckedSequence]:
    """Makes empty sequences."""
    find_logits = cache(runner.find_logits)
    return lambda: CheckedSequence(runner.model, find_logits, runner.gap)


@pytest.fixture
def sequence(new: Callable[[], CheckedSequence]) -> CheckedSequence:
    sequence = new()
    sequence.read(1, 2)
    return sequence


_ACTIONS = ("append", "store", "cut", "fork", "drop", "forget", "nothing")


@settings(max_examples=max(12, settings().max_examples // 2))
@given(data=st.data())
def test_steps_of_any_kind_give_each_node_the_logits_of_its_path(
    data: st.DataObject, runner: RunnerCase, new: Callable[[], CheckedSequence]
) -> None:
    """Several sequences, together in a pass or not. What was stored beside one is used by all that begin alike."""
    sequences = [new()]
    sequences[0].read(0)
    stored: dict[tuple[int, ...], Any] = {}
    for _ in range(data.draw(st.integers(3, 7))):
        places = data.draw(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=3, unique=True))
        chosen = [sequences[place] for place in places]  # hypothesis would keep what it draws
        trees = [data.draw(random_trees(_NUM_IDS, data.draw(st.booleans()))) for _ in chosen]
        parts = [_build_part(each, tree, stored) for each, tree in zip(chosen, trees, strict=True)]
        for each, part, rows in zip(chosen, parts, runner.model.forward(parts), strict=True):
            each.check(part, rows)
        for each, part in zip(chosen, parts, strict=True):
            copies = zip(each.find_paths(part.tree), each.cache.copy_branches(part.tree), strict=True)
            each.keep(part.tree)
            stored |= {path: row for path, row in copies if row is not None and data.draw(st.booleans())}
            del copies
            _act(data.draw(st.sampled_from(_ACTIONS)), each, sequences, stored, data)
    for each in sequences:
        each.read(1)


def _build_part(sequence: CheckedSequence, tree: TokenTree, stored: dict[tuple[int, ...], Any]) -> SequencePart:
    """A pass over the tree. If it has no chain, all that is stored below the sequence is above its branches."""
    known: list[tuple[int, ...]] = []
    for path in [] if tree.chain_ids else sorted(stored, key=len):
        if path[:-1] in (sequence.kept, *known):
            known.append(path)
    place = {path: index for index, path in enumerate(known)}
    last = len(known) - 1 if known else None
    below = [last if parent is None else parent + len(known) for parent in tree.parents]
    parents = [*(place.get(path[:-1]) for path in known), *below]
    branch_ids = (*(path[-1] for path in known), *tree.branch_ids)
    return SequencePart(
        sequence.cache, TokenTree(tree.chain_ids, branch_ids, tuple(parents)), tuple(map(stored.get, known))
    )


def _act(
    action: str,
    sequence: CheckedSequence,
    sequences: list[CheckedSequence],
    stored: dict[tuple[int, ...], Any],
    data: st.DataObject,
) -> None:
    kept = sequence.kept
    count = data.draw(st.integers(1, max(len(kept), 1)))
    if action == "append":
        rows = []
        while paths := [path for path in stored if path[:-1] == kept]:
            kept = paths[0]
            rows.append(stored[kept])
        sequence.cache.append(rows)
        sequence.kept = kept
    elif action == "store":
        copies = sequence.cache.copy_tokens(count)
        stored |= {kept[: count + 1 + index]: row for index, row in enumerate(copies) if row is not None}
    elif action == "cut":
        sequence.cut(count)
    elif action == "fork":
        sequences.append(sequence.fork(data.draw(st.sampled_from([None, count]))))
    elif action == "drop" and len(sequences) > 1:
        sequences.remove(sequence)
    elif action == "forget" and stored:
        del stored[data.draw(st.sampled_from(sorted(stored)))]


def test_rows_are_in_the_order_of_the_parts_and_only_for_those_that_want_them(
    runner: RunnerCase, new: Callable[[], CheckedSequence]
) -> None:
    ids = [(0, 1), (2,), (3, 1)]
    sequences = [new() for _ in ids]
    trees = [TokenTree(each) for each in ids]
    parts = [
        SequencePart(each.cache, tree, wants_logits=tree.num_tokens > 1)
        for each, tree in zip(sequences, trees, strict=True)
    ]

    together = runner.model.forward(parts)

    assert together[1] == []
    for index in (0, 2):
        sequences[index].check(parts[index], together[index])


def test_a_pass_without_memory_says_so_leaves_all_caches_and_can_be_tried_again(
    runner: RunnerCase, sequence: CheckedSequence
) -> None:
    other = sequence.fork()
    parts = [SequencePart(each.cache, _TREE) for each in (sequence, other)]
    with runner.without_memory(), pytest.raises(OverloadedError, match=r"a forward pass over [0-9]+ tokens"):
        runner.model.forward(parts)
    assert sequence.cache.num_tokens == other.cache.num_tokens == 2

    for each, part, rows in zip((sequence, other), parts, runner.model.forward(parts), strict=True):
        each.check(part, rows)
        each.keep(part.tree)
        each.read(1)


def test_a_cache_that_gets_no_room_says_so_and_is_unchanged(runner: RunnerCase, sequence: CheckedSequence) -> None:
    refused: list[Callable[[], object]] = [
        lambda: sequence.cache.reserve(1 << 45),
        lambda: sequence.cache.fork(None, 1 << 45),
        lambda: runner.model.new_cache(1 << 45),
    ]
    for refuse in refused:
        with pytest.raises(OverloadedError, match=r"the keys and values of [0-9]+ tokens"):
            refuse()
    sequence.read(3)


@pytest.mark.parametrize(("num_tokens", "capacity", "expected"), [(1, 3, 3), (None, 1, 2), (2, 0, 2), (1, 9, 9)])
def test_a_copy_has_the_room_that_is_asked_for(
    num_tokens: int | None, capacity: int, expected: int, sequence: CheckedSequence
) -> None:
    sequence.cache.reserve(100)

    copy = sequence.fork(num_tokens, capacity)

    assert copy.cache.num_tokens in (num_tokens or 2, 0)  # 0: a state cannot be cut to one token
    assert expected <= copy.cache.capacity <= 2 * expected
    assert copy.cache.nbytes < sequence.cache.nbytes / 5
    copy.read(1)


def test_a_long_text_is_read_in_pieces_of_any_size(new: Callable[[], CheckedSequence]) -> None:
    random, sequence = Random(0), new()
    for size in (1, 59, 1, 59):
        sequence.skim([random.randrange(_NUM_IDS) for _ in range(size)])
    sequence.read(2)


def test_a_row_depends_on_its_neighbours_by_less_than_the_gap(runner: RunnerCase) -> None:
    trees = [_TREE, TokenTree((1,)), TokenTree((7, 8, 9, 1, 2, 3), (4, 5), (None, None))]
    together = runner.model.forward([SequencePart(runner.model.new_cache(9), tree) for tree in trees])
    alone = runner.model.forward([SequencePart(runner.model.new_cache(9), _TREE)])
    ours, theirs = (np.stack([row.to_host() for row in rows]) for rows in (together[0], alone[0]))
    np.testing.assert_allclose(ours, theirs, atol=runner.gap, rtol=0)
