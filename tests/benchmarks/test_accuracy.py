import math

import pytest

from benchmarks.accuracy import Outcome, find_advantage, find_right_percent
from inference.protocol.completion import ExplainedNode, Explanation, Healing


def _outcome(advantage: float, *, none: bool, exact: bool, between: bool = False) -> Outcome:
    is_right = {Healing.NONE: none, Healing.GREEDY: False, Healing.EXACT: exact}
    return Outcome(1, none, between, is_right, advantage)


def _explain(*crossings: tuple[int, float | None]) -> Explanation:
    nodes = tuple(ExplainedNode(None, "", covered, None, None, log_prob) for covered, log_prob in crossings)
    return Explanation((), "Nod", nodes, (), ())


@pytest.mark.parametrize(
    ("crossings", "advantage"),
    [
        ([(0, -1.5), (1, None), (2, -4.0), (3, -2.0), (3, -3.0)], -0.5),
        ([(0, 0.0), (3, -2.0)], -2.0),  # a certain token counts
        ([(0, None), (3, -9.0)], math.inf),  # no token began before the cursor
    ],
)
def test_the_advantage_compares_the_best_tokens_at_and_before_the_cursor(
    crossings: list[tuple[int, float | None]], advantage: float
) -> None:
    assert find_advantage(_explain(*crossings)) == pytest.approx(advantage)


def test_a_prior_turns_to_the_unhealed_completion_where_it_outweighs_the_odds() -> None:
    outcome = _outcome(-1.0, none=True, exact=False)

    assert [outcome.is_right_with(weight) for weight in (0.0, 0.9, 1.0)] == [False, False, True]


def test_cursors_between_words_count_as_often_as_users_stop_there() -> None:
    outcomes = [_outcome(1.0, none=True, exact=False, between=True), _outcome(1.0, none=False, exact=True)]

    assert [find_right_percent(outcomes, 0.0, odds) for odds in (1.0, 3.0)] == [pytest.approx(50), pytest.approx(75)]
