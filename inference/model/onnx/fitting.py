"""Which numbers and how many threads suit a decoder on this machine, where the settings leave that open.

A small model keeps float32 and one thread: a key takes milliseconds, and the cores are left to the editor. A larger one
has 8 bits, and 4 where its weights would take most of the memory otherwise and 4 are quicker. It has more threads as
long as they are clearly quicker; of more than two cores, one is left to the editor. What is quicker is found by a short
trial, with products of one row as in decoding, and kept beside the converted weights.
"""

import math
import platform
import timeit
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, numpy_helper

from inference.config import AUTO_DTYPE
from inference.errors import ModelError
from inference.model.measurements import MAX_SMALL, Fit, count_cores
from inference.model.onnx.decoder_config import DecoderConfig
from inference.model.onnx.graph import build_graph_model, build_product
from inference.model.onnx.session import VERSION, open_session
from inference.model.onnx.weights import BLOCK_SIZE, Array, Precision, count_blocks, iter_shapes, quantize

_MAX_MEMORY_SHARE = 0.5
_MIN_GAIN = 1.2  # of more threads, or of fewer bits
_NUM_TRIAL_WEIGHTS = 2**26  # more than a cache has room for
_NUM_RUNS = 8
_CHECKED_SHAPE, _MAX_ROUNDING = (64, 300), 0.25  # of the weights of a check, and of its results

Trial = dict[str, float]  # "BITS THREADS" -> seconds


def choose_fit(
    dtype: str, num_threads: int | None, decoder: DecoderConfig, num_bytes: int, run_trial_once: Callable[[], Trial]
) -> Fit:
    """What suits a decoder. A type of numbers other than `auto` and a number of threads are taken as they are.

    `num_bytes`: of memory, see `find_memory`. `run_trial_once`: called if it decides something.
    """
    num_weights = sum(math.prod(shape) for _, shape in iter_shapes(decoder))
    reason = f"{num_weights / 1e6:,.0f} million weights"
    is_small, is_auto = num_weights <= MAX_SMALL, dtype == AUTO_DTYPE
    if is_auto:
        dtype = (Precision.FLOAT32 if is_small else Precision.INT8).value
    if is_small or (num_threads and not is_auto):
        return Fit(dtype, num_threads or 1, reason)
    trial = run_trial_once()
    if is_auto and num_weights > _MAX_MEMORY_SHARE * num_bytes and trial["8 1"] > _MIN_GAIN * trial["4 1"]:
        dtype = Precision.INT4.value
        reason += f", which 8 bits each would make most of {num_bytes / 1e9:.0f} GB"
    best = num_threads or 1
    for key in trial:
        bits, threads = key.split()
        if num_threads is None and bits == "8" and trial[f"8 {best}"] > _MIN_GAIN * trial[key]:
            best = int(threads)
    if best > 1 and num_threads is None:
        reason += f"; in a trial, {best} threads were {trial['8 1'] / trial[f'8 {best}']:.1f} times as quick as one"
    return Fit(dtype, best, reason)


def name_trial(decoder: DecoderConfig) -> str:
    """Under which the result is kept: on another machine, and for rows of another size, it is another one."""
    return f"trial-{platform.node()}-{count_cores()}-{VERSION}-{decoder.hidden_size}"


def run_trial(decoder: DecoderConfig) -> Trial:
    """The time of a product of one row, by bits and by threads, with fewer threads first."""
    num_cores = count_cores()
    most = num_cores - (num_cores > 2)
    counts = sorted({1, most, *(2**power for power in range(1, most.bit_length()) if 2**power <= most)})
    return {f"{bits} {count}": _measure_s(decoder.hidden_size, bits, count) for bits in (8, 4) for count in counts}


def _measure_s(size: int, num_bits: int, num_threads: int) -> float:
    num_outputs, num_blocks = _NUM_TRIAL_WEIGHTS // size, count_blocks(size)
    codes = np.random.default_rng(0).integers(
        256, size=(num_outputs, num_blocks, BLOCK_SIZE * num_bits // 8), dtype=np.uint8
    )
    parts: dict[str, Array] = {"codes": codes, "scales": np.ones((num_outputs, num_blocks), np.float32)}
    run = _open_product(parts, np.ones((1, 2, size), np.float32), num_outputs, num_bits, num_threads)
    return min(timeit.repeat(run, number=1, repeat=_NUM_RUNS))


def check_product(num_bits: int) -> None:
    """Raises ModelError if onnxruntime computes a product with weights of so many bits wrongly on this machine."""
    if num_bits == Precision.FLOAT32.num_bits:
        return
    random = np.random.default_rng(0)
    weights, rows = (
        random.normal(1, 1, shape).astype(np.float32) for shape in (_CHECKED_SHAPE, (1, 2, _CHECKED_SHAPE[1]))
    )
    codes, scales, zero_points = quantize(weights, num_bits)
    parts = {"codes": codes, "scales": scales, "zero points": zero_points.reshape(len(weights), -1)}
    expected = rows @ weights.T
    [found] = _open_product(parts, rows, len(weights), num_bits, 1)()
    if not (found - expected).std() <= _MAX_ROUNDING * expected.std():
        raise ModelError(f"onnxruntime computes products with weights of {num_bits} bits wrongly on this machine")


def _open_product(
    parts: dict[str, Array], rows: npt.NDArray[np.float32], num_outputs: int, num_bits: int, num_threads: int
) -> Callable[[], list[npt.NDArray[np.float32]]]:
    """What multiplies rows with weights of few bits."""
    constants = [numpy_helper.from_array(array, name) for name, array in parts.items()]
    node = build_product(["rows", *parts], "out", rows.shape[-1], num_outputs, num_bits)
    output = (TensorProto.FLOAT, [*rows.shape[:-1], num_outputs])
    model = build_graph_model([node], {"rows": (TensorProto.FLOAT, rows.shape)}, {"out": output}, constants)
    return partial(open_session(model.SerializeToString(), num_threads).run, None, {"rows": rows})
