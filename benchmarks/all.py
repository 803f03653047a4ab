"""Runs the benchmarks of speed one after the other, and prints their figures beside the targets.

What each of them prints goes to `build/bench/NAME.log`. `benchmarks.engine_gpu` is not among them: it needs a GPU.
"""

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measures.report import print_rows, read_figures
from benchmarks.measures.targets import TARGETS, build_row

_NAMES = ("keystrokes", "latency", "load")
_LOG_DIR = Path("build/bench")


def main() -> None:
    _LOG_DIR.mkdir(parents=True, exist_ok=True)
    for name in _NAMES:
        _run(name)
    figures = {name: read_figures(name) for name in _NAMES}
    print_rows("Speed", [build_row(target, figures[target.report].get(target.figure)) for target in TARGETS])


def _run(name: str) -> None:
    log = _LOG_DIR / f"{name}.log"
    print(f"{name}: ", end="", flush=True)
    started_at = time.perf_counter()
    with log.open("w") as file:
        ended = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], stdout=file, stderr=file)
    print(f"{time.perf_counter() - started_at:.0f} s, log in {log}")
    if ended.returncode != 0:
        raise SystemExit(f"benchmarks.{name} failed:\n{log.read_text()[-2000:]}")


if __name__ == "__main__":
    main()
