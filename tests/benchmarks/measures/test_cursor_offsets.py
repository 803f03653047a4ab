import math

import pytest

from benchmarks.measures.cursor_offsets import Outcome, build_offset_rows, find_advantage, find_percent
from inference.protocol.completion import ExplainedNode, Explanation, Healing


def _outcome(advantage: float, *, none: bool, exact: bool, between: bool = False, offset: int = 1) -> Outcome:
    is_right = {Healing.NONE: none, Healing.GREEDY: False, Healing.EXACT: exact}
    return Outcome(offset, none, between, is_right, advantage)


def _explain(*crossings: tuple[int, float | None]) -> Explanation:
    nodes = tuple(ExplainedNode(None, "", covered, None, None, log_prob) for covered, log_prob in crossings)
    return Explanation((), "Nod", nodes, (), ())


def test_the_advantage_compares_the_best_tokens_at_and_before_the_cursor() -> None:
    explanation = _explain((0, -1.5), (1, None), (2, -4.0), (3, -2.0), (3, -3.0))

    assert find_advantage(explanation) == pytest.approx(-0.5)


def test_a_token_of_certain_probability_counts() -> None:
    assert find_advantage(_explain((0, 0.0), (3, -2.0))) == pytest.approx(-2.0)


def test_the_advantage_is_infinite_if_no_token_began_before_the_cursor() -> None:
    assert find_advantage(_explain((0, None), (3, -9.0))) == math.inf


def test_a_prior_turns_to_the_unhealed_completion_where_it_outweighs_the_odds() -> None:
    outcome = _outcome(-1.0, none=True, exact=False)

    assert [outcome.is_right_with(weight) for weight in (0.0, 0.9, 1.0)] == [False, False, True]


def test_cursors_between_words_count_as_often_as_users_stop_there() -> None:
    outcomes = [_outcome(1.0, none=True, exact=False, between=True), _outcome(1.0, none=False, exact=True)]

    assert find_percent(outcomes, 0.0) == pytest.approx(50)
    assert find_percent(outcomes, 0.0, pause_odds=3.0) == pytest.approx(75)


def test_rows_are_by_place_and_by_offset() -> None:
    outcomes = [
        _outcome(1.0, none=offset % 2 == 0, exact=True, offset=offset) for offset in (1, 1, 2, 3, 4, 5, 6, 7, 8, 8)
    ]

    rows = {row["cursors"]: row for row in build_offset_rows(outcomes)}

    assert (rows["all"]["number"], rows["edge"]["number"], rows["inside"]["number"]) == (10, 5, 5)
    assert (rows["8 typed"]["number"], rows["8 typed"]["none"], rows["1 typed"]["none"]) == (2, 100, 0)
