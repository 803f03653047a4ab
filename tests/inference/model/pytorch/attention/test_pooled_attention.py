import numpy as np
import pytest
import torch

from inference.model.pytorch.attention import PackedPass, PooledAttention, pack_pass
from inference.model.pytorch.pool import Segment
from tests.support.attention_oracle import REACHES, TestPass, build_pass, check_pass
from tests.support.plain_kernel import PlainKernel

_CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", REACHES)
def test_a_kernel_that_reads_the_packed_pass_gives_the_attention_of_each_row(kind: str) -> None:
    for seed in range(8):
        test = build_pass(seed)
        check_pass(
            lambda segments, device: PooledAttention(segments, device, PlainKernel(), group=2), test, REACHES[kind]
        )


def _list_rows(packed: PackedPass) -> list[int]:
    return [row for first, count, *_ in packed.tiles.tolist() for row in range(first, first + count)]


@pytest.mark.parametrize("group", [1, 2, 6, 7, 71])
def test_each_row_is_in_one_tile_of_limited_size(group: int) -> None:
    for seed in range(12):
        test = build_pass(seed)
        packed = pack_pass(test.segments, _CPU, group)

        assert _list_rows(packed) == list(range(test.query.shape[1]))
        assert all(0 < count <= packed.rows_per_tile for _, count, *_ in packed.tiles.tolist())
        assert packed.rows_per_tile == 1 or packed.rows_per_tile * group <= 64
        assert packed.max_keys == max(packed.tiles[:, 3].tolist())


def test_the_keys_of_a_tile_end_with_the_last_one_that_a_row_sees() -> None:
    visible = np.tri(100, dtype=np.bool_)
    places = np.arange(100)
    test = build_pass(0)
    segment = Segment(test.pool.planes, places, places, places, places, visible)

    packed = pack_pass([segment], _CPU, group=4)

    assert packed.rows_per_tile == 16
    assert packed.tiles[:, 3].tolist() == [16, 32, 48, 64, 80, 96, 100]
    assert packed.tiles[:, 4].tolist() == [0, 16, 32, 48, 64, 80, 96]


def test_all_that_a_pass_must_know_is_one_tensor() -> None:
    test: TestPass = build_pass(1)
    packed = pack_pass(test.segments, _CPU, group=2)

    parts = (packed.tiles, packed.positions, packed.new_slots, packed.key_slots, packed.key_positions, packed.bits)
    assert len({part.untyped_storage().data_ptr() for part in parts}) == 1
