import pytest

from benchmarks.corpora.typing import Key, KeyKind, Moment
from benchmarks.measures.typing.key_times import KeyTime, Layer, find_key_times
from benchmarks.measures.typing.recorded_lsp import RequestRecord
from benchmarks.measures.typing.replay_editor import Outcome, PressedKey

_STATS = {"total_ms": 50.0, "queue_ms": 5.0, "prompt_ms": 2.0, "model_ms": 40.0, "choice_ms": 1.0}


def _moment(text: str, cursor: int, kind: KeyKind = KeyKind.LETTER) -> Moment:
    return Moment(Key(0, kind, cursor - 1, cursor - 1, text[cursor - 1], cursor, 0.2), text)


def _pressed(sent_at: float, ended_at: float, outcome: Outcome = Outcome.TEXT) -> PressedKey:
    return PressedKey(sent_at, ended_at, outcome)


def _record(
    prefix_end: str, asked_at: float, *chunks_at: float, stats: dict[str, float] | None = None
) -> RequestRecord:
    return RequestRecord(prefix_end, "", asked_at, list(chunks_at), stats)


def _find_one(pressed: PressedKey, *records: RequestRecord) -> KeyTime:
    [found] = find_key_times([_moment("ab", 2)], [300], [pressed], records)
    return found


def test_the_layers_of_a_key_add_up_to_its_time() -> None:
    found = _find_one(_pressed(1.0, 1.1), _record("ab", 1.01, 1.07, stats=_STATS))

    assert found.total_ms == pytest.approx(100)
    assert found.layers == pytest.approx(
        {
            Layer.LANGUAGE_SERVER: 40,
            Layer.WIRE: 10,
            Layer.QUEUE: 3,  # its queue_ms contains the healing
            Layer.HEALING: 2,
            Layer.MODEL: 40,
            Layer.CHOICE: 1,
            Layer.ENGINE: 4,
        }
    )
    assert sum((found.layers or {}).values()) == pytest.approx(found.total_ms)
    assert found.overhead_ms == pytest.approx(60)


def test_a_server_that_does_not_measure_its_model_has_no_known_overhead() -> None:
    stats = {"total_ms": 50.0, "queue_ms": 5.0}

    found = _find_one(_pressed(1.0, 1.1), _record("ab", 1.01, 1.07, stats=stats))

    assert found.layers is not None
    assert found.layers[Layer.ENGINE] == pytest.approx(45)
    assert (found.overhead_ms, found.num_first_rows, found.num_read_tokens) == (None, None, None)


def test_rows_are_those_of_the_statistics() -> None:
    stats = _STATS | {"num_first_rows": 3.0, "num_read_tokens": 1.0}

    found = _find_one(_pressed(1.0, 1.1), _record("ab", 1.01, 1.07, stats=stats))

    assert (found.num_first_rows, found.num_read_tokens) == (3, 1)


def test_a_key_without_a_request_needs_no_server() -> None:
    found = _find_one(_pressed(1.0, 1.001))

    assert (found.needs_server, found.is_answered, found.layers) == (False, True, None)


def test_a_first_line_that_is_answered_before_the_completion_is_whole_is_not_split() -> None:
    found = _find_one(_pressed(1.0, 1.1), _record("ab", 1.01, 1.07, 1.5, stats=_STATS))

    assert (found.needs_server, found.layers) == (True, None)


def test_a_cancelled_request_is_not_split() -> None:
    found = _find_one(_pressed(1.0, 1.1, Outcome.NONE), _record("ab", 1.01))

    assert (found.needs_server, found.is_answered, found.layers) == (True, False, None)


def test_a_request_that_starts_after_the_next_key_belongs_to_the_key_with_its_text() -> None:
    moments = [_moment("ab", 2), _moment("abc", 3)]
    pressed = [_pressed(1.0, 1.5), _pressed(1.1, 1.6)]
    records = [_record("ab", 1.2, 1.4), _record("abc", 1.3, 1.5)]

    late, last = find_key_times(moments, [300], pressed, records)
    [without, served] = find_key_times(moments, [300], pressed, records[1:])

    assert (late.needs_server, last.needs_server) == (True, True)
    assert (without.needs_server, served.needs_server) == (False, True)


def test_of_keys_with_the_same_text_the_last_one_before_the_request_has_made_it() -> None:
    moments = [_moment("ab", 2), _moment("abx", 3), _moment("ab", 2)]
    pressed = [_pressed(1.0, 1.1), _pressed(2.0, 2.1), _pressed(3.0, 3.1)]

    found = find_key_times(moments, [300], pressed, [_record("ab", 3.01)])

    assert [each.needs_server for each in found] == [False, False, True]


def test_a_request_of_an_earlier_key_is_not_taken_for_one_of_a_later_key() -> None:
    moments = [_moment("ab", 2), _moment("ab", 2)]
    pressed = [_pressed(1.0, 1.1), _pressed(2.0, 2.1)]

    found = find_key_times(moments, [300], pressed, [_record("ab", 1.05)])

    assert [each.needs_server for each in found] == [True, False]
