"""The answers of torch's own operations, against brute force."""

import dataclasses

import pytest
import torch
from hypothesis import given

from inference.model.pytorch.scoring import PlainScorer, Question, TokenRanks
from tests.support.choice_cases import (
    KERNEL_TYPES,
    ChoiceCase,
    assert_draws_follow_weights,
    assert_right,
    choice_cases,
    make_draws,
    make_rows,
    make_vocabulary,
)


def _build_case(num_logits: int = 60, chunk_size: int = 16) -> ChoiceCase:
    vocabulary, trie = make_vocabulary(num_logits)
    ranks = TokenRanks(vocabulary, trie, torch.device("cpu"), chunk_size)
    rows = make_rows(1, num_logits, torch.float32, 1.5)
    return ChoiceCase(vocabulary, trie, ranks, rows, [Question(0, ranks.all_tokens)], [], [])


@given(case=choice_cases((*KERNEL_TYPES, torch.float64)))
def test_all_answers_equal_those_by_brute_force(case: ChoiceCase) -> None:
    assert_right(case, case.find_scores(PlainScorer(case.ranks)))


def test_tokens_beside_the_interval_are_allowed() -> None:
    case = _build_case(300)
    question = Question(0, case.trie.find_interval(b"abca"), case.trie.find_ancestors(b"abca"))
    case = dataclasses.replace(case, questions=[question])

    assert len(question.more_ids) > 2
    assert_right(case, case.find_scores(PlainScorer(case.ranks)))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("chunk_size", [16, 64])
def test_draws_follow_the_weights_of_the_allowed_tokens(temperature: float, chunk_size: int) -> None:
    case = make_draws(_build_case(chunk_size=chunk_size), 4000, temperature)

    assert_draws_follow_weights(case, case.find_scores(PlainScorer(case.ranks)))


def test_the_same_seed_and_offset_draw_the_same_and_others_differ() -> None:
    case = _build_case()
    scorer = PlainScorer(case.ranks)

    drawn = make_draws(case, 40, 1.0, seed=3).find_scores(scorer).drawn_ids.tolist()
    again = make_draws(case, 20, 1.0, seed=3).find_scores(scorer).drawn_ids.tolist()
    other = make_draws(case, 40, 1.0, seed=3 + 2**40).find_scores(scorer).drawn_ids.tolist()

    assert drawn[:20] == again != drawn[20:]
    assert drawn != other


def test_questions_of_one_draw_have_noise_of_their_own() -> None:
    """The greatest score is an exact draw of a question only if their scores are independent."""
    case = _build_case()
    twice = make_draws(dataclasses.replace(case, questions=case.questions * 2), 20, 1.0)

    scores = twice.find_scores(PlainScorer(case.ranks)).draw_scores.reshape(2, 20)

    assert (scores[0] != scores[1]).all()
