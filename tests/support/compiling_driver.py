"""A driver for the Triton language that compiles kernels for a GPU that is not there, and launches nothing.

The product launches its kernels as always, on tensors of the CPU. Each launch is compiled to machine code for the
target, and recorded with what it takes of a processor: registers, and the memory that they spill to.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

HOPPER = GPUTarget("cuda", 90, 32)
MAX_SHARED_BYTES = 232_448  # of a processor of a Hopper GPU, for one block of threads

_devices = count()
_DUMPER = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a compiled kernel."""

    kernel: str
    grid: tuple[int, int, int]
    num_threads: int
    num_registers: int  # of each thread
    num_spilled_bytes: int  # of each thread
    num_shared_bytes: int


class CompilingDriver:
    """Stands in for the driver of a GPU."""

    def __init__(self, target: GPUTarget, max_shared_bytes: int = MAX_SHARED_BYTES) -> None:
        self.launches: list[Launch] = []
        self._target = target
        self._device = next(_devices)  # the limits of a device are asked once
        self.utils = SimpleNamespace(
            load_binary=_load_binary,
            unload_module=lambda _module: None,
            get_device_properties=lambda _device: {"max_shared_mem": max_shared_bytes, "multiprocessor_count": 132},
        )

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._device

    def get_current_stream(self, _device: int) -> int:
        return 0

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def launch(*args: Any, **_named: Any) -> None:
            grid, function = args[:3], args[4]
            registers, spilled = function
            self.launches.append(
                Launch(source.name, grid, 32 * metadata.num_warps, registers, spilled, metadata.shared)
            )

        return launch


@contextmanager
def compiling_for(target: GPUTarget, max_shared_bytes: int = MAX_SHARED_BYTES) -> Iterator[CompilingDriver]:
    """Inside the context, kernels are compiled for `target` and not run."""
    driver = CompilingDriver(target, max_shared_bytes)
    triton.runtime.driver.set_active(driver)
    try:
        yield driver
    finally:
        triton.runtime.driver._active = None


def _load_binary(_name: str, binary: bytes, _shared: int, _device: int) -> tuple[Any, ...]:
    """What a driver tells of machine code, from the code itself. The function is its registers and spilled bytes."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        text = subprocess.run(
            [_DUMPER, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found, text
    registers, spilled = int(found[1]), int(found[2])
    return None, (registers, spilled), registers, spilled, 1024
