"""What the device ran during an action: its time in kernels and copies, their number, and a table of the longest."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.measures.gpu.setting import Setting

_NUM_WARM_UP = 3
_NUM_RUNS = 5
_NUM_LISTED = 40


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The mean of some runs. On the CPU, operators are counted instead of kernels and copies."""

    busy_us: float  # the sum of their times; gaps between them are not in it
    num_launches: float
    table: str


def profile_action(setting: Setting, action: Callable[[], object]) -> DeviceProfile:
    """Profiles the action, after it has run a few times."""
    for _ in range(_NUM_WARM_UP):
        action()
    setting.synchronize()
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if setting.is_cuda else [])]
    with profile(activities=kinds) as profiler:
        for _ in range(_NUM_RUNS):
            action()
        setting.synchronize()
    averages = profiler.key_averages()
    wanted = "CUDA" if setting.is_cuda else "CPU"
    found = [each for each in averages if each.device_type.name == wanted]
    name = "self_device_time_total" if setting.is_cuda else "self_cpu_time_total"
    times = [float(getattr(each, name)) for each in found]
    return DeviceProfile(
        busy_us=sum(times) / _NUM_RUNS,
        num_launches=sum(each.count for each in found) / _NUM_RUNS,
        table=averages.table(sort_by=name, row_limit=_NUM_LISTED, max_name_column_width=80),
    )


def describe(name: str, found: DeviceProfile, gpu_name: str) -> str:
    """The profile as the content of a file."""
    return (
        f"{name}, on {gpu_name}, torch {torch.__version__}\n"
        f"each run: {found.busy_us:,.1f} us in {found.num_launches:,.1f} kernels and copies\n\n{found.table}\n"
    )
