"""The answers of both scorers against brute force; the kernels' scorer is interpreted. Wrong scorers are refused."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from hypothesis import given

from inference.errors import ModelError
from inference.model.pytorch.scoring import (
    Batch,
    Edge,
    Level,
    PlainScorer,
    Question,
    Scorer,
    TokenRanks,
    _build_words,
    build_gumbels,
    build_uniforms,
    check_scorer,
)
from tests.support.choice_cases import (
    KERNEL_TYPES,
    ChoiceCase,
    assert_draws_follow_weights,
    assert_right,
    build_case,
    choice_cases,
    make_draws,
    make_vocabulary,
)
from tests.support.kernels import interpreted
from trie_cache.trie import Interval

BuildScorer = Callable[[TokenRanks], Scorer]


def _build_kernel_scorer(ranks: TokenRanks) -> Scorer:
    from inference.model.pytorch.choice_kernel import KernelScorer

    return KernelScorer(ranks)


pytestmark = [  # of the interpreter, which computes with NumPy
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"),
]
of_each_type = pytest.mark.parametrize("dtype", KERNEL_TYPES, ids=str)
of_each_scorer = pytest.mark.parametrize(
    "build", [PlainScorer, pytest.param(_build_kernel_scorer, marks=interpreted)], ids=["plain", "kernel"]
)


@given(case=choice_cases((*KERNEL_TYPES, torch.float64)))
def test_all_answers_of_torchs_operations_equal_those_by_brute_force(case: ChoiceCase) -> None:
    assert_right(case, case.find_scores(PlainScorer(case.ranks)))


@interpreted
@given(case=choice_cases(KERNEL_TYPES))
def test_all_answers_of_the_kernels_equal_those_by_brute_force(case: ChoiceCase) -> None:
    assert_right(case, case.find_scores(_build_kernel_scorer(case.ranks)))


@of_each_scorer
@of_each_type
def test_many_edges_and_tokens_beside_an_interval_have_their_answers(build: BuildScorer, dtype: torch.dtype) -> None:
    case = build_case(dtype, 300)
    question = Question(0, case.trie.find_interval(b"abca"), case.trie.find_ancestors(b"abca"))
    edges = [Edge(row, token_id) for row in range(2) for token_id in range(100)]
    case = dataclasses.replace(case, questions=[question, question._replace(row=1)], edges=edges)
    assert len(question.more_ids) > 2
    assert_right(case, case.find_scores(build(case.ranks)))


@of_each_scorer
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_weights_of_the_allowed_tokens(build: BuildScorer, temperature: float) -> None:
    case = build_case(torch.bfloat16)
    case = make_draws(dataclasses.replace(case, questions=case.questions[1:]), 700, temperature)
    assert_draws_follow_weights(case, case.find_scores(build(case.ranks)))


@of_each_scorer
def test_a_logit_that_is_no_number_makes_the_total_no_number(build: BuildScorer) -> None:
    """The sampler refuses such rows."""
    case = build_case(torch.bfloat16)
    case.rows[1][13] = torch.nan
    case.rows[0][40] = torch.inf
    assert not torch.from_numpy(case.find_scores(build(case.ranks)).log_totals).isfinite().any()


def test_the_same_seed_and_offset_draw_the_same_and_others_differ() -> None:
    case = build_case(torch.float32)
    case = dataclasses.replace(case, questions=case.questions[:1])
    scorer = PlainScorer(case.ranks)
    drawn = make_draws(case, 40, 1.0, seed=3).find_scores(scorer).drawn_ids.tolist()
    again = make_draws(case, 20, 1.0, seed=3).find_scores(scorer).drawn_ids.tolist()
    other = make_draws(case, 40, 1.0, seed=3 + 2**40).find_scores(scorer).drawn_ids.tolist()
    assert drawn[:20] == again != drawn[20:]
    assert drawn != other


def test_questions_of_one_draw_have_noise_of_their_own() -> None:
    """The greatest score is an exact draw of a question only if their scores are independent."""
    case = build_case(torch.float32)
    twice = make_draws(dataclasses.replace(case, questions=case.questions[:1] * 2), 20, 1.0)
    scores = twice.find_scores(PlainScorer(case.ranks)).draw_scores.reshape(2, 20)
    assert (scores[0] != scores[1]).all()


# The authors' known answers for Philox 4x32-10: counter, key, first word of the result.
_KNOWN = [
    ((0, 0, 0, 0), (0, 0), 0x6627E8D5),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, 0x408F276D),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), 0xD16CFE09),
]


def _to_int64(value: int) -> torch.Tensor:
    return torch.tensor([value - 2**64 if value >= 2**63 else value])


def test_words_are_those_of_philox() -> None:
    for (index, offset, stream, level), (low, high), word in _KNOWN:
        seeds, indices, offsets, streams = (_to_int64(value) for value in (low + (high << 32), index, offset, stream))
        words = _build_words(seeds, indices, offsets, streams, level)  # type: ignore[arg-type]  # no level is so great
        assert words.tolist() == [word]


def test_noise_has_the_moments_of_its_law() -> None:
    zero = torch.zeros(1, dtype=torch.long)
    uniforms = build_uniforms(zero, torch.arange(100_000), zero, zero, Level.TOKEN).double()
    assert 0 < uniforms.min() < 1e-4
    assert 1 - 1e-4 < uniforms.max() <= 1
    gumbels = build_gumbels(zero, torch.arange(100_000), zero, zero, Level.CHUNK).double()
    assert gumbels.isfinite().all()
    for numbers, mean, variance in ((uniforms, 1 / 2, 1 / 12), (gumbels, 0.5772, torch.pi**2 / 6)):
        assert numbers.mean().item() == pytest.approx(mean, rel=0.03)
        assert numbers.var().item() == pytest.approx(variance, rel=0.03)


def test_every_argument_changes_the_noise() -> None:
    base = {"seeds": 5, "indices": 6, "offsets": 7, "streams": 8}
    changed = [base, *({**base, name: 9} for name in base), {**base, "seeds": 5 + 2**40}]
    numbers = {
        build_uniforms(**{name: torch.tensor([value]) for name, value in each.items()}, level=level).item()
        for each in changed
        for level in Level
    }
    assert len(numbers) == len(changed) * len(Level)


class _WrongScorer:
    """Answers right but for one kind of answer."""

    def __init__(self, right: Scorer, kind: int, error: float) -> None:
        self._right = right
        self._kind = kind
        self._error = error

    def score(self, batch: Batch) -> torch.Tensor:
        sizes = [len(batch.questions)] * 4 + [len(batch.draws)] * 2 + [len(batch.edges)]
        answers = self._right.score(batch)
        torch.split(answers, sizes)[self._kind].add_(self._error)
        return answers


@pytest.mark.parametrize("num_logits", [1, 2, 5, 64, 300])
@of_each_type
def test_a_scorer_with_right_answers_is_accepted(dtype: torch.dtype, num_logits: int) -> None:
    ranks = TokenRanks(*make_vocabulary(num_logits), torch.device("cpu"), chunk_size=64)
    check_scorer(PlainScorer(ranks), PlainScorer(ranks), ranks, dtype)


@pytest.mark.parametrize(
    ("kind", "error", "fault"),
    [
        (0, 0.01, "its log_totals differ by 0.01 "),
        (1, 1.0, "its log_masses differ by 1 "),
        (2, torch.nan, "its best_logits differ by nan "),
        (3, 2.0, "its best_ids differ by 2 "),
        (4, 0.01, "its draw_scores differ by 0.01 "),
        (5, 1.0, r"only 0 of its \d+ draws "),
        (6, torch.nan, "its edge_logits differ by nan "),
    ],
)
@torch.inference_mode()
def test_a_wrong_answer_is_refused_with_its_name_and_the_difference(kind: int, error: float, fault: str) -> None:
    ranks = TokenRanks(*make_vocabulary(300), torch.device("cpu"), chunk_size=64)
    right = PlainScorer(ranks)
    with pytest.raises(ModelError, match=f"_WrongScorer .* bfloat16 logits on cpu: {fault}"):
        check_scorer(_WrongScorer(right, kind, error), right, ranks, torch.bfloat16)


def test_an_interval_and_further_ids_are_found_in_their_order() -> None:
    vocabulary, trie = make_vocabulary(60)
    ranks = TokenRanks(vocabulary, trie, torch.device("cpu"))
    inside = trie.order[3:20].tolist()
    further = trie.order[[1, 25]].tolist()
    assert ranks.find_ids(Interval(3, 20), torch.tensor(further)).tolist() == sorted([*inside, *further])
