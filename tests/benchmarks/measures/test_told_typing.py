import pytest

from benchmarks.corpora.typing import Key, KeyKind
from benchmarks.keystrokes import KeyTime, Played
from benchmarks.measures.recorded_lsp import RequestRecord
from benchmarks.measures.told_typing import find_told_figures


def _play(total_ms: float, read: int, *related: int) -> Played:
    key = Key(0, KeyKind.LETTER, 0, 0, "x", 1, 0.2)
    times = [KeyTime(key, True, total_ms, needs_server=True, stats={"num_read_tokens": read})]
    prefetch = RequestRecord("", "", 1.0, is_prefetch=True, related_bytes=900)
    return Played(times, [prefetch, *(RequestRecord("", "", 1.0, related_bytes=each) for each in related)])


def test_each_pair_has_its_own_ratio_and_only_what_was_told_counts() -> None:
    told = [_play(12, 0, 300, 0), _play(22, 9, 400, 500), _play(90, 0)]

    figures = find_told_figures(told, [_play(10, 0), _play(20, 0), _play(30, 0)])

    ratios = (figures["ghost_ratio"], figures["ghost_ratio_lowest"], figures["ghost_ratio_highest"])
    assert ratios == pytest.approx((1.2, 1.1, 3.0))
    assert (figures["told_requests_share"], figures["told_request_bytes"]) == (0.75, 350)
    assert figures["context_reads_le_1_share"] == pytest.approx(2 / 3)
    assert figures["untold_context_reads_le_1_share"] == 1
