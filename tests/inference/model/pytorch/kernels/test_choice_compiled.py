"""What the compiler makes of the kernels of a choice for a GPU that need not be there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton cannot be imported; `make test-kernels` runs this")

_NUM_THREADS = 128  # of a program: 4 warps
_NUM_REGISTERS = 65_536  # of a multiprocessor of sm_90


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The kernels, compiled in another process: in this one they may be interpreted."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("compiled"))
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.compiled_kernels"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[5], check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    for each in found:
        print(each)
    return found


def test_no_register_is_spilled(report: list[dict[str, Any]]) -> None:
    assert len(report) == 6
    assert [(each["stack"], each["local"]) for each in report] == [(0, 0)] * 6


def test_five_programs_that_read_the_logits_fit_on_a_multiprocessor(report: list[dict[str, Any]]) -> None:
    """Fewer would not have enough reads under way to hide the memory's latency."""
    for each in report:
        if each["kernel"] == "score_chunks":
            registers = -(-each["reg"] // 8) * 8  # they are given out by eights
            assert 5 * registers * _NUM_THREADS <= _NUM_REGISTERS, each
            assert each["shared"] <= 4096, each


def test_logits_are_read_sixteen_bytes_at_once(report: list[dict[str, Any]]) -> None:
    """Each thread reads 16 logits and 16 ranks of 4 bytes."""
    num_loads = {"torch.bfloat16": 2 + 4, "torch.float16": 2 + 4, "torch.float32": 4 + 4}
    for each in report:
        assert each["vector_loads"] == num_loads[each["dtype"]], each
