"""The kernels run in the interpreter of their language, and are compiled for a GPU that is not there."""

from collections.abc import Sequence
from functools import partial

import pytest
import torch

from inference.errors import ModelError
from inference.model.pytorch.attention import PooledAttention
from inference.model.pytorch.pool import Segment
from inference.model.pytorch.transformers_hook import PassAttention, Reach, ScoreRule
from tests.support.attention_oracle import REACHES, PassShape, TestPass, build_pass, check_pass
from tests.support.kernels import MAX_SHARED_BYTES, compiled, compiling, interpreted

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")  # interpreter


def _pool(segments: Sequence[Segment], group: int, num_processors: int = 132) -> PassAttention:
    from inference.model.pytorch.attention_kernel import attend_together

    return PooledAttention(segments, torch.device("cpu"), partial(attend_together, num_processors), group).attend


def _launch(test: TestPass, reach: Reach) -> None:
    _pool(test.segments, test.shape.group)(0, test.query, test.key, test.value, ScoreRule(reach, 0.7))


# Half of the combinations: each pair of two options is in one of them.
@interpreted
@pytest.mark.parametrize(
    ("has_sinks", "softcap", "num_processors"),
    [(False, None, 1), (False, 0.5, 200), (True, None, 200), (True, 0.5, 1)],
    ids=["whole", "softcap, in shares", "sinks, in shares", "sinks, softcap, whole"],
)
@pytest.mark.parametrize("kind", REACHES)
def test_each_row_attends_to_the_keys_it_may_see(
    kind: str, has_sinks: bool, softcap: float | None, num_processors: int
) -> None:
    # Of some hundred keys there are shares, of which the last has none.
    long = PassShape(max_kept=300) if num_processors == 1 else PassShape(max_kept=900, num_sequences=2)
    for seed, shape in ((0, PassShape()), (2, long)):
        check_pass(
            lambda segments: _pool(segments, 2, num_processors),
            build_pass(seed, shape),
            REACHES[kind],
            softcap=softcap,
            has_sinks=has_sinks,
        )


_SHAPES = [(2, 6, 128, 128), (4, 7, 128, 128), (3, 1, 64, 64), (2, 1, 80, 80), (1, 16, 192, 128), (1, 71, 64, 64)]


@interpreted
@pytest.mark.parametrize("sizes", _SHAPES, ids=str)
def test_heads_of_any_number_and_size_are_right(sizes: tuple[int, int, int, int]) -> None:
    test = build_pass(7, PassShape(*sizes, num_sequences=2, max_kept=200))
    check_pass(lambda segments: _pool(segments, test.shape.group), test, Reach(), tolerance=1e-4)


@interpreted
def test_half_precision_is_as_exact_as_its_rounding() -> None:
    """In float16: the interpreter gives nonsense for products in bfloat16."""
    test = build_pass(4, PassShape(2, 2, 16, 16, max_kept=200, dtype=torch.float16))
    check_pass(lambda segments: _pool(segments, 2), test, Reach(), tolerance=4e-3)


@compiled
@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [(sizes, torch.bfloat16) for sizes in _SHAPES] + [(sizes, torch.float32) for sizes in _SHAPES[1::3]],
    ids=str,
)
@torch.inference_mode()
def test_the_kernels_compile_for_a_gpu_within_the_limits_of_its_processors(
    sizes: tuple[int, int, int, int], dtype: torch.dtype
) -> None:
    """The largest tiles, and those of single rows with shares. In half precision almost nothing is spilled."""
    reaches = [Reach(), Reach(window=7)][:: 1 if _SHAPES.index(sizes) % 2 else -1]  # each for half of the shapes
    with compiling() as driver:
        for seed, reach in zip((3, 5), reaches, strict=True):  # a tree, and a single row
            _launch(build_pass(seed, PassShape(*sizes, num_sequences=1, max_kept=4000, dtype=dtype)), reach)

    assert {launch.kernel for launch in driver.launches} == {"_attend_tiles", "_add_shares"}
    assert max(launch.num_shared_bytes for launch in driver.launches) <= MAX_SHARED_BYTES
    assert max(launch.num_spilled_bytes for launch in driver.launches) <= (1024 if dtype == torch.float32 else 16)


@compiled
@torch.inference_mode()
def test_a_device_whose_processors_are_too_small_is_refused_by_name() -> None:
    with (
        compiling(max_shared_bytes=1000),
        pytest.raises(ModelError, match="the attention kernel cannot be run on this device for heads of 128 numbers"),
    ):
        _launch(build_pass(3, PassShape(2, 2, 128, 128)), Reach())
