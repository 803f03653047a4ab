import math

import numpy as np
import pytest

from benchmarks.measures.walk import Walk


def _walk(failure: str | None = None) -> Walk:
    """A walk with one bit for `a`, two bits for `b`, and a third byte that was not read."""
    rows = np.full((2, 257), -np.inf, np.float32)
    rows[0, ord("a")], rows[1, ord("b")] = -math.log(2), -2 * math.log(2)
    return Walk(b"abc", rows, np.array([0.5, 2.0]), np.array([1.0, 4.0]), failure)


def test_bits_per_byte_counts_only_bytes_that_were_read() -> None:
    assert _walk().bits_per_byte == pytest.approx(1.5)


def test_speed_is_over_the_whole_walk() -> None:
    assert (_walk().bytes_per_cpu_s, _walk().bytes_per_wall_s) == (1.0, 0.5)


def test_a_walk_can_be_cut_to_its_first_bytes() -> None:
    cut = _walk().cut(1)
    assert (len(cut), cut.text, cut.bytes_per_cpu_s) == (1, b"a", 2.0)
    assert cut.bits_per_byte == pytest.approx(1)


def test_bits_per_byte_are_infinite_from_a_failure_on() -> None:
    failed = _walk("the beam is empty")
    assert failed.bits_per_byte == failed.cut(3).bits_per_byte == math.inf
    assert failed.cut(2).bits_per_byte == pytest.approx(1.5)
