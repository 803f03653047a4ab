"""What is chosen while the logits of some branches are missing, against the choice with all rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.sampler import SampleRequest, SampleResult, Sampling, choose, find_row
from tests.support.samplers import (
    GREEDY,
    both_rows,
    build_rows,
    find_log_probs,
    may_follow,
)
from tests.support.toys import toy_tokenizer

_TOY = toy_tokenizer("qwen")
_TEXT_IDS = [token_id for token_id, token in enumerate(_TOY.vocabulary.token_bytes) if token]


@dataclass(frozen=True)
class _Case:
    """A request, the logits of all its nodes, and which of its branches were forwarded."""

    tree: TokenTree
    crossings: tuple[Crossing, ...]
    logits: torch.Tensor  # [num_nodes, vocab_size]
    forwarded: frozenset[int]


@st.composite
def _cases(draw: st.DrawFn) -> _Case:
    num_branches = draw(st.integers(1, 7))
    parents = tuple(draw(st.sampled_from([None, *range(index)])) for index in range(num_branches))
    branch_ids = tuple(draw(st.sampled_from(_TEXT_IDS)) for _ in range(num_branches))
    tree = TokenTree((1,), branch_ids, parents)
    nodes = draw(st.lists(st.sampled_from([None, *range(num_branches)]), min_size=1, max_size=5, unique=True))
    crossings = tuple(draw(_crossings(node)) for node in nodes)
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    scale = draw(st.sampled_from([0.0, 1.0, 4.0]))  # with 0.0, many are equally likely
    logits = np.round(2 * scale * random.standard_normal((1 + num_branches, _TOY.num_rows))) / 2
    for branch in draw(st.sets(st.integers(0, num_branches - 1))):  # a path that the model follows
        logits[find_row(parents[branch]), branch_ids[branch]] += draw(st.sampled_from([4.0, 9.0, 30.0]))
    forwarded = draw(st.frozensets(st.integers(0, num_branches - 1)))
    return _Case(tree, crossings, torch.from_numpy(logits), forwarded)


def _crossings(node: int | None) -> st.SearchStrategy[Crossing]:
    tokens = st.sampled_from([_TOY.vocabulary.token_bytes[token_id] for token_id in _TEXT_IDS])
    beginnings = st.tuples(tokens, st.integers(0, 3)).map(lambda drawn: drawn[0][: drawn[1]])
    return st.builds(Crossing, st.just(node), beginnings, st.sampled_from(Rule)).filter(
        lambda crossing: any(may_follow(_TOY, token_id, crossing) for token_id in range(_TOY.num_rows))
    )


def _choose(name: str, case: _Case, forwarded: frozenset[int], **fields: Any) -> SampleResult:
    rows = build_rows(name, _TOY, case.logits)
    known = [rows[0], *(row if branch in forwarded else None for branch, row in enumerate(rows[1:]))]
    return choose(SampleRequest(case.tree, case.crossings, known, **{"sampling": GREEDY, **fields}))


def _split(case: _Case) -> tuple[list[Crossing], list[Crossing]]:
    """The crossings whose paths were forwarded, and the others."""
    is_read = [case.forwarded.issuperset(case.tree.iter_path(crossing.node)) for crossing in case.crossings]
    pairs = list(zip(case.crossings, is_read, strict=True))
    return [crossing for crossing, known in pairs if known], [crossing for crossing, known in pairs if not known]


def _find_bound(case: _Case, crossing: Crossing) -> float:
    """log P of the path, with 1 for the branches after missing ones, by the definition."""
    log_probs = find_log_probs(_TOY, case.logits)
    bound = 0.0
    for branch in case.tree.find_path(crossing.node):
        parent = case.tree.parents[branch]
        if parent is None or parent in case.forwarded:
            bound += float(log_probs[find_row(parent), case.tree.branch_ids[branch]])
    return bound


def _find_best(case: _Case, crossing: Crossing) -> float:
    """log P of the path and the most likely token that may follow it, by the definition."""
    log_probs = find_log_probs(_TOY, case.logits)[find_row(crossing.node)]
    return _find_bound(case, crossing) + max(
        float(log_probs[token_id]) for token_id in range(_TOY.num_rows) if may_follow(_TOY, token_id, crossing)
    )


@both_rows
@given(case=_cases())
def test_the_greedy_choice_is_that_of_all_rows_once_nothing_more_is_needed(name: str, case: _Case) -> None:
    """Branches that are needed are named once, and after their missing ancestors."""
    expected = _choose(name, case, frozenset(range(len(case.tree.branch_ids))))
    forwarded = case.forwarded
    result = _choose(name, case, forwarded)
    while result.missing:
        assert result.choices == ()
        for branch in result.missing:
            assert branch not in forwarded
            forwarded |= {branch}
            assert forwarded.issuperset(case.tree.iter_path(branch))
        result = _choose(name, case, forwarded)

    assert result.choices == expected.choices


@both_rows
@given(case=_cases())
def test_exactly_the_paths_are_needed_that_may_be_as_likely_as_the_best_known_token(name: str, case: _Case) -> None:
    forwarded, missing = _split(case)
    best = max((_find_best(case, crossing) for crossing in forwarded), default=-torch.inf)
    bounds = [
        (_find_bound(case, crossing), set(case.tree.iter_path(crossing.node)) - case.forwarded) for crossing in missing
    ]

    needed = set(_choose(name, case, case.forwarded).missing)

    assert set().union(*(path for bound, path in bounds if bound > best + 1e-3)) <= needed
    assert needed <= set().union(*(path for bound, path in bounds if bound > best - 1e-3))


@both_rows
@pytest.mark.parametrize(
    "fields",
    [
        {"sampling": Sampling(1.0, 1.0)},
        {"wants_scores": True},
        {"random_sources": (None, None)},
    ],
)
@given(case=_cases())
def test_what_needs_all_masses_needs_every_branch_below_which_a_token_may_follow(
    name: str, fields: dict[str, Any], case: _Case
) -> None:
    fields = {"random_sources": (np.random.default_rng(1),), **fields}
    paths = {branch for crossing in case.crossings for branch in case.tree.iter_path(crossing.node)}

    result = _choose(name, case, case.forwarded, **fields)

    assert result.missing == tuple(sorted(paths - case.forwarded))
    assert bool(result.choices) == (paths <= case.forwarded)
