"""The choices among rows of each kind, against members that are scored one by one."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.sampler import SampleRequest, SampleResult, Sampling, choose
from inference.protocol.completion import CompletionRequest
from tests.support.samplers import (
    GREEDY,
    assert_follows,
    both_rows,
    build_rows,
    find_log_probs,
    may_follow,
)
from tests.support.toys import END, KINDS, ToyTokenizer, build_prompts, texts, toy_tokenizer

_EXACT = Sampling(temperature=1.0, top_p=1.0)
_ANY = Crossing(None, b"", Rule.EXTEND)
_dtypes = st.sampled_from([torch.bfloat16, torch.float16, torch.float32, torch.float64])


@dataclass(frozen=True)
class _Member:
    """One member of a covering, scored alone."""

    crossing: int
    token_id: int
    log_prob: float


def _score_all(
    toy: ToyTokenizer, tree: TokenTree, crossings: tuple[Crossing, ...], logits: torch.Tensor
) -> list[_Member]:
    """Returns every member of the covering, scored. `logits` are the rows of the tree."""
    rows = find_log_probs(toy, logits).tolist()
    members = []
    for index, crossing in enumerate(crossings):
        path_log_prob, row = 0.0, 0
        for branch in tree.find_path(crossing.node):
            path_log_prob += rows[row][tree.branch_ids[branch]]
            row = branch + 1
        members += [
            _Member(index, token_id, path_log_prob + rows[row][token_id])
            for token_id in range(toy.num_rows)
            if may_follow(toy, token_id, crossing)
        ]
    return members


def _random_logits(toy: ToyTokenizer, tree: TokenTree, seed: int) -> torch.Tensor:
    """Padding rows are likelier than all tokens."""
    num_rows = 1 + len(tree.branch_ids)
    logits = 3 * torch.randn(num_rows, toy.num_rows, generator=torch.Generator().manual_seed(seed))
    logits[:, [token_id for token_id in range(toy.num_rows) if not may_follow(toy, token_id, _ANY)]] = 100.0
    return logits


def _covering(toy: ToyTokenizer, prefix: str) -> tuple[TokenTree, tuple[Crossing, ...]]:
    prompt = build_prompts(toy).build(CompletionRequest(prefix), 256)
    return prompt.covering.tree.with_chain(prompt.context_ids), prompt.covering.crossings


def _choose(
    name: str,
    toy: ToyTokenizer,
    covering: tuple[TokenTree, tuple[Crossing, ...]],
    logits: torch.Tensor,
    sampling: Sampling = GREEDY,
    num_choices: int = 1,
    seed: int = 0,
) -> SampleResult:
    """The result of one request, whose rows were all read. It asks for scores."""
    source = None if sampling.is_greedy else np.random.default_rng(seed)
    rows = build_rows(name, toy, logits)
    return choose(SampleRequest(*covering, rows, sampling, (source,) * num_choices, wants_scores=True))


def _assert_agrees(result: SampleResult, members: list[_Member], crossings: tuple[Crossing, ...]) -> None:
    """Checks masses, best members and the greedy choice against members that are scored one by one."""
    scores = result.scores
    assert scores is not None
    for index in range(len(crossings)):
        here = [member for member in members if member.crossing == index]
        log_probs = torch.tensor([member.log_prob for member in here])
        best = max(here, key=lambda member: member.log_prob)
        assert scores.log_masses[index] == pytest.approx(torch.logsumexp(log_probs, 0).item(), abs=1e-3)
        assert scores.best_log_probs[index] == pytest.approx(best.log_prob, abs=1e-3)
        assert scores.best_ids[index] == best.token_id
    best = max(members, key=lambda member: member.log_prob)
    [choice] = result.choices
    assert (crossings.index(choice.crossing), choice.token_id) == (best.crossing, best.token_id)
    _assert_tells_probabilities(result, members, crossings)


def _assert_tells_probabilities(result: SampleResult, members: list[_Member], crossings: tuple[Crossing, ...]) -> None:
    """Checks what is told of each choice: its share of the mass of all members, before any temperature."""
    total = torch.logsumexp(torch.tensor([member.log_prob for member in members], dtype=torch.float64), 0).item()
    expected = {(member.crossing, member.token_id): member.log_prob - total for member in members}
    for choice in result.choices:
        own = expected[crossings.index(choice.crossing), choice.token_id]
        assert choice.log_prob == pytest.approx(own, abs=1e-3)


@both_rows
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=settings().max_examples // 2)
@given(prefix=texts, dtype=_dtypes, seed=st.integers(0, 1000))
def test_masses_and_the_best_choice_equal_those_of_members_scored_alone(
    name: str, kind: str, prefix: str, dtype: torch.dtype, seed: int
) -> None:
    """Rounded logits are often equal."""
    toy = toy_tokenizer(kind)
    tree, crossings = _covering(toy, prefix)
    logits = _random_logits(toy, tree, seed).to(dtype)

    result = _choose(name, toy, (tree, crossings), logits)

    _assert_agrees(result, _score_all(toy, tree, crossings, logits), crossings)


@both_rows
@pytest.mark.parametrize(
    ("scale", "end_shift", "allowed_shift"),
    [(1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1.0, 50.0, 0.0), (1.0, 0.0, -60.0)],
    ids=["random", "equal", "likely end", "rare"],
)
@given(rule=st.sampled_from(Rule), data=st.data(), seed=st.integers(0, 1000))
def test_under_every_rule_the_choice_is_the_best_allowed_token(
    name: str, scale: float, end_shift: float, allowed_shift: float, rule: Rule, data: st.DataObject, seed: int
) -> None:
    """Of equally likely ones the smallest id. A difference of cumulative sums would lose the mass of rare ones."""
    toy = toy_tokenizer("qwen")
    token = data.draw(st.sampled_from([token for token in toy.vocabulary.token_bytes if token]))
    crossing = Crossing(None, token[: data.draw(st.integers(0, len(token)))], rule)
    tree = TokenTree((1,))
    logits = scale * _random_logits(toy, tree, seed)
    logits[:, toy.vocabulary.special_tokens[END]] += end_shift
    logits[:, [token_id for token_id in range(toy.num_rows) if may_follow(toy, token_id, crossing)]] += allowed_shift
    members = _score_all(toy, tree, (crossing,), logits)
    assume(members)

    result = _choose(name, toy, (tree, (crossing,)), logits)

    _assert_agrees(result, members, (crossing,))


def _expected_probabilities(members: list[_Member], sampling: Sampling) -> dict[tuple[int, int], float]:
    """Returns the softmax at a temperature over all members, limited to the most likely ones up to `top_p`."""
    weights = {
        (member.crossing, member.token_id): math.exp(member.log_prob / sampling.temperature) for member in members
    }
    total = sum(weights.values())
    kept: dict[tuple[int, int], float] = {}
    for key, weight in sorted(weights.items(), key=lambda item: -item[1]):
        if sum(kept.values()) >= sampling.top_p:
            break
        kept[key] = weight / total
    return {key: probability / sum(kept.values()) for key, probability in kept.items()}


@both_rows
@pytest.mark.parametrize(
    ("sampling", "prefix"),
    [
        (_EXACT, "x = \n  "),
        (Sampling(0.5, 1.0), "return s"),
        (Sampling(1.0, 0.7), "return s"),
        (Sampling(2.0, 0.9), ""),
    ],
)
def test_samples_follow_the_members_probabilities(name: str, sampling: Sampling, prefix: str) -> None:
    toy = toy_tokenizer("qwen")
    tree, crossings = _covering(toy, prefix)
    logits = _random_logits(toy, tree, 5) / 2
    members = _score_all(toy, tree, crossings, logits)
    probabilities = _expected_probabilities(members, sampling)
    num_draws = 6000

    result = _choose(name, toy, (tree, crossings), logits, sampling, num_draws, seed=1)

    drawn = Counter((crossings.index(choice.crossing), choice.token_id) for choice in result.choices)
    assert set(drawn) <= set(probabilities)
    expected = np.array([probability * num_draws for probability in probabilities.values()])
    assert_follows(np.array([drawn[member] for member in probabilities]), expected)
    _assert_tells_probabilities(result, members, crossings)


@both_rows
@given(
    scale=st.sampled_from([0.0, 1.0]),
    num_choices=st.sampled_from([2, 5, 300]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_greedy_candidates_are_the_most_likely_members_then_the_first(
    name: str, scale: float, num_choices: int, seed: int, data: st.DataObject
) -> None:
    toy, tree = toy_tokenizer("qwen"), TokenTree((4,))
    crossings = tuple(Crossing(None, remaining_bytes, Rule.SPELL) for remaining_bytes in (b"te", b"re"))
    logits = scale * _random_logits(toy, tree, seed)
    allowed = [token_id for token_id in range(toy.num_rows) if may_follow(toy, token_id, crossings[0])]
    logits[:, data.draw(st.lists(st.sampled_from(allowed), min_size=1))] = -torch.inf
    members = [member for member in _score_all(toy, tree, crossings, logits) if member.log_prob > -math.inf]
    members.sort(key=lambda member: -member.log_prob)

    result = _choose(name, toy, (tree, crossings), logits, num_choices=num_choices)

    assert [(crossings.index(choice.crossing), choice.token_id) for choice in result.choices] == [
        (member.crossing, member.token_id) for member in members[:num_choices]
    ]
