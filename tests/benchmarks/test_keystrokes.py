from typing import Any

import pytest

from benchmarks.corpora.typing import Key, KeyKind, Moment
from benchmarks.keystrokes import KeyTime, find_figures, find_key_times
from benchmarks.measures.lsp_client import Answer
from benchmarks.measures.recorded_lsp import RequestRecord
from benchmarks.measures.replay_editor import PressedKey

_STATS = {"total_ms": 50.0, "queue_ms": 5.0, "prompt_ms": 2.0, "model_ms": 40.0, "choice_ms": 1.0}


def _moment(text: str) -> Moment:
    return Moment(Key(0, KeyKind.LETTER, len(text) - 1, len(text) - 1, text[-1], len(text), 0.2), text)


def _pressed(sent_at: float, ended_at: float, result: Any = ()) -> PressedKey:
    return PressedKey(sent_at, Answer(ended_at, result))


def _record(
    prefix_end: str, asked_at: float, *chunks_at: float, stats: dict[str, float] | None = None
) -> RequestRecord:
    return RequestRecord(prefix_end, "", asked_at, list(chunks_at), stats)


def test_the_layers_of_a_key_add_up_to_its_time() -> None:
    record = _record("ab", 1.01, 1.07, stats=_STATS)
    [found] = find_key_times([_moment("ab")], [_pressed(1.0, 1.1)], [record])

    assert found.layers == pytest.approx(
        {
            "language server": 40,
            "wire": 10,
            "queue": 3,  # its queue_ms contains the healing
            "healing": 2,
            "model": 40,
            "choice": 1,
            "engine": 4,
        }
    )
    assert sum((found.layers or {}).values()) == pytest.approx(found.total_ms) == pytest.approx(100)
    assert found.overhead_ms == pytest.approx(60)


@pytest.mark.parametrize(
    ("result", "record"),
    [
        ((), _record("ab", 1.01, 1.07, 1.5, stats=_STATS)),  # answered before the completion is whole
        (None, _record("ab", 1.01, 1.07, stats=_STATS)),  # too late
        ((), _record("ab", 1.01)),  # cancelled
    ],
)
def test_what_is_not_answered_with_the_whole_completion_is_not_split(result: Any, record: RequestRecord) -> None:
    [found] = find_key_times([_moment("ab")], [_pressed(1.0, 1.1, result)], [record])

    assert (found.needs_server, found.layers) == (True, None)


@pytest.mark.parametrize(
    ("texts", "records", "need_server"),
    [
        (["ab"], [], [False]),
        (["ab", "abc"], [_record("ab", 3.2), _record("abc", 3.3)], [True, True]),  # sent after the next key
        (["ab", "abc"], [_record("abc", 3.3)], [False, True]),
        (["ab", "abx", "ab"], [_record("ab", 3.01)], [False, False, True]),  # the last key with this text
        (["ab", "ab"], [_record("ab", 1.05)], [True, False]),  # not one of a later key
    ],
)
def test_a_request_belongs_to_the_last_key_before_it_that_has_its_text(
    texts: list[str], records: list[RequestRecord], need_server: list[bool]
) -> None:
    pressed = [_pressed(1.0 + number, 1.5 + number) for number in range(len(texts))]

    found = find_key_times(map(_moment, texts), pressed, records)

    assert [each.needs_server for each in found] == need_server


def _time(
    total_ms: float,
    read: int | None = None,
    is_first: bool = False,
    is_answered: bool = True,
    needs_server: bool = True,
) -> KeyTime:
    key = Key(0, KeyKind.LETTER, 0, 0, "x", 1, 0.2, is_first)
    stats = {} if read is None else {"num_read_tokens": read}
    return KeyTime(key, is_answered, total_ms, needs_server, stats=stats)


def test_keys_that_are_the_first_or_unanswered_or_need_no_server_are_counted_apart_too() -> None:
    times = [_time(10, 0), _time(30, 5), _time(900, is_answered=False)]
    times += [_time(500, 899, is_first=True), _time(20, 1, is_first=True), _time(1, needs_server=False)]

    figures = find_figures(times)

    assert (figures["ghost_ms_p50"], figures["first_ms_p50"], figures["typed_ahead_ms_p50"]) == (25, 260, 1)
    assert (figures["answered_share"], figures["typed_ahead_share"]) == pytest.approx((5 / 6, 1 / 6))
    assert figures["context_reads_le_1_share"] == pytest.approx(3 / 5)  # a key that needs no server reads nothing
    assert (figures["served_reads_le_1_share"], figures["prefetched_share"]) == (0.5, 0.5)
