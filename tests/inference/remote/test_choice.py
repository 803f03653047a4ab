"""The choice from bounds is that from whole distributions."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from inference.healing.covering import build_covering, find_crossing_interval
from inference.healing.heal_point import find_heal_point
from inference.healing.token_tree import TokenTree
from inference.model.sampler import NumpyRow, NumpyTokens, SampledToken, SampleRequest, Sampling, choose, find_row
from inference.remote.choice import KnownLogprobs
from tests.support.toys import toy_tokenizer

_GREEDY = Sampling(temperature=0.0, top_p=1.0)


def _find_top(log_probs: npt.NDArray[np.float64], count: int) -> Mapping[int, float]:
    return {int(token_id): float(log_probs[token_id]) for token_id in np.argsort(-log_probs)[:count]}


@given(
    st.text("abdeflnorstu _(.=\n", min_size=1, max_size=12),
    st.integers(0, 2**32 - 1),
    st.integers(1, 40) | st.just(10**6),
    st.sampled_from([0.5, 2.0, 8.0]),
)
def test_the_choice_is_that_of_the_whole_distributions_and_asks_for_nothing_twice(
    text: str, seed: int, num_top: int, spread: float
) -> None:
    toy = toy_tokenizer("qwen")
    covering = build_covering(toy.encoder, toy.trie, find_heal_point(toy.encoder, text))
    tree, random = covering.tree, np.random.default_rng(seed)
    tokens = NumpyTokens(toy.vocabulary, toy.trie)
    rows = [NumpyRow(random.normal(0, spread, toy.vocabulary.num_rows).astype(np.float32), tokens) for _ in range(20)]
    rows = [rows[index % 20] for index in range(1 + len(tree.branch_ids))]
    logits = [row.logits.astype(np.float64) for row in rows]
    log_probs = [each - np.logaddexp.reduce(each) for each in logits]
    request = SampleRequest(TokenTree((0,), tree.branch_ids, tree.parents), covering.crossings, rows, _GREEDY)
    expected = choose(request)

    known = KnownLogprobs(covering, toy.trie, [_find_top(each, num_top) for each in log_probs])
    for temperature in (0.1, 1.0):
        assert (
            _weigh_unknown(known, log_probs, temperature) <= 1.000001 * np.exp(known.bound_unknown(temperature)) + 1e-9
        )
    assert known.bound_unknown(1.1) == np.inf
    while not isinstance(choice := known.choose(), SampledToken):
        assert not set(choice) & known.answers.keys()
        for probe in choice:
            best = max(probe.token_ids, key=log_probs[probe.row].__getitem__)
            known.answers[probe] = best, float(log_probs[probe.row][best])

    (wanted,) = expected.choices
    assert choice == wanted
    assert choice.log_prob is not None
    assert wanted.log_prob is not None
    path = tree.find_path(wanted.crossing.node)
    log_joint = log_probs[find_row(wanted.crossing.node)][wanted.token_id]
    log_joint += sum(log_probs[find_row(tree.parents[branch])][tree.branch_ids[branch]] for branch in path)
    difference = np.exp(log_joint - choice.log_prob) - np.exp(log_joint - wanted.log_prob)  # of the totals
    assert abs(difference) <= 1.000001 * np.exp(known.bound_unknown(1.0)) + 1e-6
    if num_top > toy.vocabulary.num_rows:
        assert abs(choice.log_prob - wanted.log_prob) < 1e-4


def _weigh_unknown(known: KnownLogprobs, log_probs: list[npt.NDArray[np.float64]], temperature: float) -> float:
    """The sum that is bounded, from whole distributions."""
    unknown, tree = 0.0, known.covering.tree
    for crossing in known.covering.crossings:
        path = [(find_row(tree.parents[branch]), tree.branch_ids[branch]) for branch in tree.find_path(crossing.node)]
        is_path_told = all(token_id in known.rows[row] for row, token_id in path)
        log_path = sum(log_probs[row][token_id] for row, token_id in path)
        (lo, hi), row = find_crossing_interval(known.trie, crossing.remaining_bytes), find_row(crossing.node)
        every = known.trie.order[lo:hi].tolist() if crossing.remaining_bytes else range(len(log_probs[row]))
        for token_id in every:
            if not (is_path_told and token_id in known.rows[row]):
                unknown += float(np.exp((log_path + log_probs[row][token_id]) / temperature))
    return unknown
