"""Sums over slices, compared with fractions, and bundles, compared with a scan of all tokens."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.characters.state import Bundle, sum_slices
from inference.characters.token_string import Floats, TokenString
from inference.model.numpy_sampler import log_sum_exp
from tests.support.character_toys import (
    START,
    RandomModel,
    SmallVocabulary,
    ToyReader,
    random_models,
    small_vocabularies,
)

# A float32 row: the difference to the peak is rounded by 2**-24 of itself, its exponential by a little more, and a
# term that is d below the peak weighs exp(-d), so rounding is at its worst at d = 1. Eight roundings are room enough.
_ERROR = {np.dtype(np.float32): 8 * 2.0**-24, np.dtype(np.float64): 1e-14}

_PEAKED = st.one_of(st.floats(-120, 0), st.floats(-1e-3, 0), st.sampled_from([-np.inf, 0.0, -69.0, -1000.0, -1e30]))
_rows = st.lists(_PEAKED, min_size=1, max_size=60)
_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def _sum_exactly(values: Floats) -> float:
    """Returns the logarithm of a sum of fractions, computed exactly."""
    finite = [float(value) for value in values if value > -np.inf]
    if not finite:
        return -np.inf
    peak = max(finite)
    terms = [Fraction(float(np.exp(np.longdouble(value) - np.longdouble(peak)))) for value in finite]
    return peak + float(np.log(float(sum(terms))))


def _assert_near(found: float, exact: float, dtype: type) -> None:
    """Compares masses: the difference of their logarithms is the relative error."""
    if exact == -np.inf:
        assert found == -np.inf
    else:
        assert abs(found - exact) <= _ERROR[np.dtype(dtype)] + 2**-52 * abs(exact)


@_dtypes
@given(row=_rows, cuts=st.sets(st.integers(1, 59)))
def test_each_slice_has_an_accurate_sum_even_beside_much_larger_ones(
    dtype: type, row: list[float], cuts: set[int]
) -> None:
    values: Floats = np.array(row, dtype)
    starts = np.array([0, *sorted(cut for cut in cuts if cut < len(row))], np.intp)

    sums = sum_slices(values, starts)

    for found, part in zip(sums, pairwise([*starts.tolist(), len(values)]), strict=True):
        _assert_near(float(found), _sum_exactly(values[slice(*part)]), dtype)


@_dtypes
@given(row=_rows)
def test_the_sum_over_a_whole_row_is_accurate(dtype: type, row: list[float]) -> None:
    values: Floats = np.array(row, dtype)

    _assert_near(log_sum_exp(values), _sum_exactly(values), dtype)


@_dtypes
def test_a_flat_row_of_a_large_vocabulary_sums_to_one(dtype: type) -> None:
    values: Floats = np.full(150_000, -np.log(150_000), dtype)

    found = log_sum_exp(values)

    _assert_near(found, float(values[0]) + np.log(150_000), dtype)


def test_the_sum_of_nothing_is_zero() -> None:
    assert log_sum_exp(np.empty(0)) == -np.inf
    assert sum_slices(np.full(4, -np.inf), np.array([0, 2], np.intp)).tolist() == [-np.inf, -np.inf]


@st.composite
def _opened(draw: st.DrawFn) -> tuple[SmallVocabulary, Bundle, npt.NDArray[np.float64], bytes]:
    """Draws a bundle after some bytes, with its row and the bytes."""
    small = draw(small_vocabularies(max_tokens=8))
    model: RandomModel = draw(random_models(small.trie))
    string = TokenString((START,))
    string.log_mass = draw(st.floats(-90, 0))
    ToyReader(model).read([string])
    assert string.log_probs is not None
    row = np.append(string.log_probs, string.log_end)
    remaining_bytes = bytes(draw(st.lists(st.sampled_from(sorted(set(small.alphabet))), max_size=3)))
    bundle: Bundle | None = Bundle.open(small.trie, string)
    for byte in remaining_bytes:
        bundle = bundle and bundle.narrow(byte)
    if bundle is None:
        assert not any(small.trie.spell(token_id).startswith(remaining_bytes) for token_id in small.trie.order.tolist())
        return draw(_opened())
    return small, bundle, row, remaining_bytes


@given(case=_opened())
def test_a_bundle_groups_tokens_after_its_remaining_bytes_by_their_next_byte(
    case: tuple[SmallVocabulary, Bundle, npt.NDArray[np.float64], bytes],
) -> None:
    small, bundle, row, remaining_bytes = case
    tokens = [small.trie.spell(token_id) for token_id in small.trie.order.tolist()]
    masses = bundle.log_mass + row

    def mass_of(begin: bytes) -> float:
        parts = [mass for mass, token in zip(masses, tokens, strict=False) if token.startswith(begin)]
        return float(np.logaddexp.reduce(parts)) if parts else -np.inf

    followers = {
        token[len(remaining_bytes)]
        for token in tokens
        if token.startswith(remaining_bytes) and len(token) > len(remaining_bytes)
    }
    assert bundle.children.bytes.tolist() == sorted(followers)
    for byte, log_mass in zip(bundle.children.bytes.tolist(), bundle.log_masses, strict=True):
        assert log_mass == pytest.approx(mass_of(remaining_bytes + bytes([byte])), abs=1e-9)
    end = masses[-1] if not remaining_bytes else -np.inf
    ended = [mass for mass, token in zip(masses, tokens, strict=False) if token == remaining_bytes]
    assert bundle.log_interval_mass == pytest.approx(np.logaddexp(mass_of(remaining_bytes), end), abs=1e-9)
    ahead = [mass_of(remaining_bytes + bytes([byte])) for byte in followers]
    assert bundle.log_ahead == pytest.approx(np.logaddexp.reduce([*ahead, end]), abs=1e-9)
    assert sorted(bundle.log_mass + log_prob for _, log_prob in bundle.find_exact()) == pytest.approx(sorted(ended))
    assert bundle.log_end == (row[-1] if not remaining_bytes else -np.inf)


@given(case=_opened(), limit=st.integers(1, 4))
def test_the_most_likely_members_of_a_bundle_come_first(
    case: tuple[SmallVocabulary, Bundle, npt.NDArray[np.float64], bytes], limit: int
) -> None:
    small, bundle, row, remaining_bytes = case
    found = bundle.find_most_likely(limit)

    if not remaining_bytes:
        assert found == [(bundle.log_mass, bundle.string, 0)]
        return
    ids = small.trie.order.tolist()
    leaving = [
        bundle.log_mass + row[rank]
        for rank, token_id in enumerate(ids)
        if small.trie.spell(token_id).startswith(remaining_bytes)
        and len(small.trie.spell(token_id)) > len(remaining_bytes)
    ]
    assert [log_mass for log_mass, _, _ in found] == pytest.approx(sorted(leaving, reverse=True)[:limit])
    for _, string, num_ahead in found:
        assert len(small.trie.spell(string.token_ids[-1])) == len(remaining_bytes) + num_ahead
