import pytest

from benchmarks.corpora.typing import Key, KeyKind
from benchmarks.measures.typing.key_rows import build_kind_rows, build_size_rows, find_figures
from benchmarks.measures.typing.key_times import KeyTime, Layer
from benchmarks.measures.typing.replay_editor import Outcome


def _time(
    total_ms: float,
    *,
    kind: KeyKind = KeyKind.LETTER,
    is_cold: bool = False,
    size: int = 300,
    outcome: Outcome = Outcome.TEXT,
    needs_server: bool = True,
    model_ms: float | None = None,
    rows: int | None = None,
    read: int | None = None,
) -> KeyTime:
    layers = None if model_ms is None else dict.fromkeys(Layer, 0.0) | {Layer.MODEL: model_ms}
    return KeyTime(
        Key(0, kind, 0, 0, "x", 1, 0.2, is_cold=is_cold), size, outcome, total_ms, needs_server, layers, rows, read
    )


def test_cold_keys_count_in_the_cold_figures_only() -> None:
    figures = find_figures([_time(10), _time(30), _time(500, is_cold=True, rows=900, read=899)])

    assert (figures["ghost_ms_p50"], figures["cold_ms_p50"]) == (20, 500)
    assert (figures["first_pass_rows_mean"], figures["context_reads_le_1_share"]) == (None, None)


def test_keys_that_need_no_server_are_counted_apart() -> None:
    figures = find_figures(
        [_time(40), _time(1, needs_server=False), _time(1, needs_server=False), _time(3, needs_server=False)]
    )

    assert (figures["ghost_ms_p50"], figures["typed_ahead_ms_p50"], figures["typed_ahead_share"]) == (40, 1, 0.75)


def test_keys_without_an_answer_have_no_time() -> None:
    figures = find_figures([_time(10), _time(900, outcome=Outcome.NONE)])

    assert (figures["ghost_ms_p99"], figures["answered_share"]) == (10, 0.5)


def test_reads_and_overhead_are_those_of_keys_for_which_they_are_known() -> None:
    times = [
        _time(50, model_ms=40, rows=1, read=0),
        _time(60, model_ms=40, rows=2, read=1),
        _time(90, model_ms=60, rows=9, read=5),
        _time(1_000),
    ]

    figures = find_figures(times)

    assert figures["overhead_ms_p50"] == 20
    assert figures["first_pass_rows_mean"] == 4
    assert figures["served_reads_le_1_share"] == pytest.approx(2 / 3)
    assert figures["split_share"] == 0.75


def test_a_key_that_needs_no_server_reads_nothing() -> None:
    times = [_time(50, read=0), _time(90, read=5), _time(1, needs_server=False), _time(1, needs_server=False)]

    assert find_figures(times)["context_reads_le_1_share"] == 0.75
    assert find_figures(times)["served_reads_le_1_share"] == 0.5
    assert find_figures([_time(50), *times[2:]])["context_reads_le_1_share"] is None


def test_typing_is_inserting_and_erasing_at_the_cursor() -> None:
    times = [_time(10, rows=1, read=0), _time(30, kind=KeyKind.BACKSPACE, rows=3, read=2)]
    times += [_time(900, kind=kind, rows=800, read=799) for kind in (KeyKind.MOVE, KeyKind.DELETE)]

    figures = find_figures(times)

    assert (figures["typing_ghost_ms_p50"], figures["typing_first_pass_rows_mean"]) == (20, 2)
    assert (figures["typing_context_reads_le_1_share"], figures["context_reads_le_1_share"]) == (0.5, 0.25)


def test_the_long_file_ratio_compares_the_longest_files_with_the_shortest() -> None:
    times = [
        _time(10, size=300),
        _time(99, size=1_000),
        _time(12, size=36_000),
        _time(900, size=36_000, is_cold=True),
    ]

    assert find_figures(times)["long_file_ratio"] == pytest.approx(1.2)
    assert find_figures(times[:1])["long_file_ratio"] is None


def test_there_is_a_row_for_each_kind_that_occurs_and_for_each_size() -> None:
    times = [_time(10), _time(20, kind=KeyKind.MOVE, is_cold=True, size=1_000), _time(30, size=1_000)]

    assert [(row["keys"], row["number"], row["ms, p50"]) for row in build_kind_rows(times)] == [
        ("all but cold", 2, 20),
        ("typing", 2, 20),
        ("letter", 2, 20),
        ("cold", 1, 20),
    ]
    assert [(row["tokens of the file"], row["ms, p50"]) for row in build_size_rows(times)] == [
        ("300", 10),
        ("1,000", 30),
    ]
