"""What the device can do: bytes copied, and operations of a matrix product, a second."""

import time
from collections.abc import Callable

import torch

from benchmarks.measures.gpu.setting import Deadline, Figures, Setting
from benchmarks.measures.report import find_percentile

_NUM_WARM_UP = 3
_NUM_TIMED = 10


def measure_device(setting: Setting, deadline: Deadline) -> Figures:
    """`copy_bytes_per_s` counts bytes read and bytes written; `matmul_tflops` is of bfloat16 on random numbers."""
    return {
        "copy_bytes_per_s": _measure_copy(setting, deadline),
        "matmul_tflops": _measure_product(setting, deadline) / 1e12,
    }


def _measure_copy(setting: Setting, deadline: Deadline) -> float:
    source = torch.empty(setting.sizes.num_copy_bytes, dtype=torch.uint8, device=setting.device).random_()
    target = torch.empty_like(source)
    return 2 * source.nbytes / time_on_device(setting, lambda: target.copy_(source), _NUM_TIMED, deadline)


def _measure_product(setting: Setting, deadline: Deadline) -> float:
    size = setting.sizes.matmul_size
    left, right = (torch.randn(size, size, device=setting.device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / time_on_device(setting, lambda: left @ right, _NUM_TIMED, deadline)


def time_on_device(setting: Setting, action: Callable[[], object], num_timed: int, deadline: Deadline) -> float:
    """The median seconds of the action: between two events on a GPU, by the clock on the CPU."""
    for _ in range(_NUM_WARM_UP):
        action()
    seconds: list[float] = []
    while len(seconds) < num_timed and (not seconds or not deadline.is_over):
        seconds.append(_time_once(setting, action))
    return find_percentile(seconds, 50) or 0.0


def _time_once(setting: Setting, action: Callable[[], object]) -> float:
    setting.synchronize()
    if not setting.is_cuda:
        began_at = time.perf_counter()
        action()
        return time.perf_counter() - began_at
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    action()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
