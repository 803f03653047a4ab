"""Runs the kernels of the Triton language without a GPU: in its interpreter, or compiled for a GPU that is not there.

`compiling_for` stands in for the driver of a GPU. The product launches its kernels as always, on tensors of the CPU.
Each launch is compiled to machine code for the target and recorded with what it takes of a processor; nothing is run.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

_IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_HAS_TRITON = find_spec("triton") is not None
interpreted = pytest.mark.skipif(not (_HAS_TRITON and _IS_INTERPRETED), reason="runs in `make test-kernels`")
compiled = pytest.mark.skipif(not _HAS_TRITON or _IS_INTERPRETED, reason="runs in `make test-kernels`")

MAX_SHARED_BYTES = 232_448  # of a processor of a Hopper GPU, for one block of threads
_HOPPER = ("cuda", 90, 32)

_devices = count()


class Launch(NamedTuple):
    """One launch of a compiled kernel."""

    kernel: str
    num_registers: int  # of each thread
    num_spilled_bytes: int  # of each thread
    num_shared_bytes: int
    num_vector_loads: int  # of 16 bytes


class CompilingDriver:
    """Stands in for the driver of a GPU."""

    def __init__(self, max_shared_bytes: int) -> None:
        from triton.backends.compiler import GPUTarget

        device = next(_devices)  # the limits of a device are asked once
        self.launches: list[Launch] = []
        self.get_current_target = lambda: GPUTarget(*_HOPPER)
        self.get_current_device = lambda: device
        self.get_current_stream = lambda _device: 0
        self.utils = SimpleNamespace(
            load_binary=_load_binary,
            unload_module=lambda _module: None,
            get_device_properties=lambda _device: {"max_shared_mem": max_shared_bytes, "multiprocessor_count": 132},
        )

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def launch(*args: Any, **_named: Any) -> None:
            registers, spilled, loads = args[4]
            self.launches.append(Launch(source.name, registers, spilled, metadata.shared, loads))

        return launch


@contextmanager
def compiling(max_shared_bytes: int = MAX_SHARED_BYTES) -> Iterator[CompilingDriver]:
    """Inside the context, kernels are compiled for a Hopper GPU and not run."""
    from triton.runtime import driver

    own = CompilingDriver(max_shared_bytes)
    driver.set_active(own)
    try:
        yield own
    finally:
        driver._active = None


def _load_binary(_name: str, binary: bytes, _shared: int, _device: int) -> tuple[Any, ...]:
    """What a driver tells of machine code, from the code itself. The function is what a launch is recorded with."""
    resources = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", _dump("--dump-resource-usage", binary))
    assert resources
    registers, stack, local = (int(number) for number in resources.groups())
    num_loads = len(re.findall(r"LDG\.E\.128", _dump("--dump-sass", binary)))
    return None, (registers, stack + local, num_loads), registers, stack + local, 1024


def _dump(option: str, binary: bytes) -> str:
    import triton

    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
        command = [str(folder / "cuobjdump"), option, file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return str(done.stdout)
