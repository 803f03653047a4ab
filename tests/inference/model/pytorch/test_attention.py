import numpy as np
import pytest
import torch

from inference.model.pytorch.attention import PooledAttention, SegmentAttention, Tile, pack_pass
from inference.model.pytorch.pool import Segment, build_lone_segment
from inference.model.pytorch.transformers_hook import Reach, ScoreRule
from tests.support.attention_oracle import REACHES, attend_plainly, build_pass, check_pass

_CPU = torch.device("cpu")


@pytest.mark.parametrize("softcap", [None, 0.5])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("kind", REACHES)
def test_each_row_attends_to_the_keys_it_may_see(kind: str, has_sinks: bool, softcap: float | None) -> None:
    for seed in range(6):
        check_pass(
            lambda segments: SegmentAttention(segments, _CPU).attend,
            build_pass(seed),
            REACHES[kind],
            softcap=softcap,
            has_sinks=has_sinks,
        )


def test_rows_whose_keys_are_not_stored_attend_to_those_of_the_pass() -> None:
    states = torch.randn(2, 2, 3, 4)
    query, key = states[0], states[1]
    out = SegmentAttention([build_lone_segment(range(7, 10))], _CPU).attend(0, query, key, key, ScoreRule(Reach(), 1.0))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, key, is_causal=True, scale=1.0)
    torch.testing.assert_close(out.transpose(0, 1), expected)


@pytest.mark.parametrize("kind", REACHES)
def test_a_kernel_that_reads_the_packed_pass_gives_the_attention_of_each_row(kind: str) -> None:
    for seed in range(8):
        check_pass(
            lambda segments: PooledAttention(segments, _CPU, attend_plainly, group=2).attend,
            build_pass(seed),
            REACHES[kind],
        )


@pytest.mark.parametrize("group", [1, 2, 6, 7, 71])
def test_each_row_is_in_one_tile_of_limited_size(group: int) -> None:
    for seed in range(12):
        test = build_pass(seed)
        packed = pack_pass(test.segments, _CPU, group)
        tiles = packed.tiles[:, [Tile.FIRST_ROW, Tile.NUM_ROWS]].tolist()

        assert [row for first, num in tiles for row in range(first, first + num)] == list(range(test.query.shape[1]))
        assert all(0 < num <= packed.rows_per_tile for _, num in tiles)
        assert packed.rows_per_tile == 1 or packed.rows_per_tile * group <= 64
        assert packed.max_keys == max(packed.tiles[:, Tile.NUM_KEYS].tolist())


def test_the_keys_of_a_tile_end_with_the_last_one_that_a_row_sees() -> None:
    places = np.arange(100)
    segment = Segment(build_pass(0).pool, places, places, places, places, np.tri(100, dtype=np.bool_))

    packed = pack_pass([segment], _CPU, group=4)

    assert packed.rows_per_tile == 16
    assert packed.tiles[:, Tile.NUM_KEYS].tolist() == [16, 32, 48, 64, 80, 96, 100]
    assert packed.tiles[:, Tile.LEAST_POSITION].tolist() == [0, 16, 32, 48, 64, 80, 96]
