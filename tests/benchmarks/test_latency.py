import pytest

from benchmarks.latency import Answers, Cursor, build_figures
from benchmarks.measures.askers import Answer
from benchmarks.measures.report import Row


def _answer(total_ms: float, num_tokens: int, first_text_ms: float = 1.0, num_forwards: int = 1) -> Answer:
    return Answer("text", first_text_ms, total_ms, num_tokens, num_forwards, 500)


def test_a_token_costs_what_the_longer_completion_takes_longer() -> None:
    answers = Answers(
        "engine",
        500,
        cold=[_answer(200, 1), _answer(210, 1), _answer(220, 1)],
        again=[_answer(10, 1), _answer(20, 1), _answer(30, 1)],
        further=[_answer(42, 33), _answer(84, 33), _answer(99, 5)],  # the last one ends too early
        lines=[_answer(30, 9, first_text_ms=15)],
    )

    assert answers.find_ms_per_token() == [pytest.approx(1.0), pytest.approx(2.0)]
    row = answers.build_row()
    assert (row["cold ms"], row["again ms"], row["token ms"]) == (210, 20, 1.5)
    assert (row["first text ms"], row["line ms"], row["line tokens"]) == (15, 30, 9)


def test_a_context_is_the_last_tokens() -> None:
    cursor = Cursor("one two three", (0, 3, 7))

    assert [cursor.find_prefix(count) for count in (1, 2, 3)] == [" three", " two three", "one two three"]


def test_the_figures_name_the_way_and_the_context() -> None:
    rows: list[Row] = [
        {"way": "engine", "context": 500, "token ms": 1.0, "cold ms": 2.0, "first text ms": 3.0, "line ms": 4.0},
        {"way": "gRPC", "context": 500, "token ms": 5.0, "cold ms": 6.0, "first text ms": 7.0, "line ms": 8.0},
    ]

    assert build_figures(rows) == {
        "decode_ms_500": 1.0,
        "prefill_ms_500": 2.0,
        "engine_first_text_ms_500": 3.0,
        "engine_line_ms_500": 4.0,
        "grpc_first_text_ms_500": 7.0,
        "grpc_line_ms_500": 8.0,
    }
