"""Runs the benchmarks of speed one after the other, and prints their figures beside the targets.

What each of them prints goes to `build/bench/NAME.log`. `benchmarks.engine_gpu` is not among them: it needs a GPU.
"""

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measures.report import Target, build_target_row, print_rows, read_figures

_NAMES = ("keystrokes", "latency", "load")
_LOG_DIR = Path("build/bench")

# On two cores, with the default model.
_TARGETS = (
    Target("keystrokes", "ghost_ms_p50", "key to ghost text, median, ms", at_most=12),
    Target("keystrokes", "ghost_ms_p99", "key to ghost text, 99 of 100 keys, ms", at_most=60),
    Target("keystrokes", "overhead_ms_p50", "without the model, median, ms", at_most=4),
    Target("keystrokes", "overhead_ms_p99", "without the model, 99 of 100 keys, ms", at_most=10),
    Target("keystrokes", "first_pass_rows_mean", "rows forwarded until the first token, mean", at_most=1.5),
    Target("keystrokes", "typing_context_reads_le_1_share", "typing: keys that read ≤ 1 context token", at_least=0.97),
    Target("keystrokes", "prefetched_share", "first keys at a place that find their context read", at_least=0.9),
    Target("keystrokes", "long_file_ratio", "time in the longest files, relative to the shortest", at_most=1.2),
    Target("latency", "decode_ms_500", "a decoded token at 500 tokens of context, ms", at_most=1.5),
    Target("latency", "prefill_ms_1000", "reading 1,000 tokens, ms", at_most=170),
    Target("latency", "healing_ms_p99_152k", "healing, 152k tokens in the vocabulary, 99 of 100 keys, ms", at_most=1),
    Target("load", "goodput_1_3", "completed at 1.3 × capacity, relative to the capacity", at_least=0.9),
    Target("load", "goodput_3", "completed at 3 × capacity, relative to the capacity", at_least=0.9),
    Target("load", "least_share", "least editor's share of its fair share", at_least=0.5),
    Target("load", "refused_ms_p99", "until a request is refused, 99 of 100, ms", at_most=50),
)


def main() -> None:
    _LOG_DIR.mkdir(parents=True, exist_ok=True)
    for name in _NAMES:
        _run(name)
    figures = {name: read_figures(name) for name in _NAMES}
    print_rows("Speed", [build_target_row(target, figures[target.report].get(target.figure)) for target in _TARGETS])


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
