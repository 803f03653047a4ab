"""Runs the short form of every benchmark, one after the other, and ends with 1 if one fails or hangs.

    python -m benchmarks.short [NAME ...]

What a benchmark prints goes to build/short/NAME.log.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measures.report import SHORT_DIR

_LONGEST_S = 600.0  # then it hangs, on a busy machine, too
_NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "short"))


def main() -> None:
    SHORT_DIR.mkdir(parents=True, exist_ok=True)
    failed = [name for name in sys.argv[1:] or _NAMES if not _runs(name)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def _runs(name: str) -> bool:
    """Whether the benchmark ends well. Prints a line."""
    print(f"{name:12}", end="", flush=True)
    log, started_at = SHORT_DIR / f"{name}.log", time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{name}", "--short"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        try:
            status = process.wait(_LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
            status = process.wait()
    took = f"{time.monotonic() - started_at:4.0f} s"
    print(f"{took}  {'right' if status == 0 else f'status {status}: see {log}'}", flush=True)
    return status == 0


if __name__ == "__main__":
    main()
