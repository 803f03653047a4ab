"""The language server as a process: the time until it answers, its memory, and a key in a large file."""

import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measures.lsp_wire import LANGUAGE_SERVER, LspWire
from benchmarks.measures.report import find_percentile

_LINE = "    value = compute(first, second)  # a line of some sixty bytes\n"


def measure_start_s(num_starts: int = 11) -> float:
    """Returns the median time from the start of the process to the answer to `initialize`."""
    times_s = []
    for _ in range(num_starts):
        started_at = time.perf_counter()
        wire = LspWire(LANGUAGE_SERVER)
        times_s.append(time.perf_counter() - started_at)
        wire.leave()
    return find_percentile(times_s, 50) or 0.0


def measure_memory_mb(address: str, texts: Sequence[str], num_completions: int, seed: int) -> float:
    """Returns the resident memory, in 10⁶ bytes, after completions in these files by the server at `address`."""
    rng = random.Random(seed)
    wire = LspWire([*LANGUAGE_SERVER, "--server", address])
    for index, text in enumerate(texts):
        wire.open(f"file:///project/{index}.py", text)
    for _ in range(num_completions):
        index = rng.randrange(len(texts))
        lines = texts[index].split("\n")
        line = rng.randrange(len(lines))
        wire.complete(f"file:///project/{index}.py", line, rng.randint(0, len(lines[line])))
    status = Path(f"/proc/{wire.process_id}/status").read_text()
    wire.leave()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


def measure_large_file_ms(folder: Path, num_keys: int, seed: int) -> dict[str, list[float]]:
    """Returns the times of keys, each an edit and a request, for each kind of file.

    The model answers at once, so that the time is that of the language server.
    """
    texts = {
        "5 MB in lines": _LINE * (5_000_000 // len(_LINE)),
        "a line of 1 MB": _LINE * 1000 + "x = [" + "1234567, " * (1_000_000 // 9) + "]\n" + _LINE * 1000,
    }
    return {name: _press_keys(folder, text, num_keys, seed) for name, text in texts.items()}


def _press_keys(folder: Path, text: str, num_keys: int, seed: int) -> list[float]:
    script = folder / "script.json"
    rules = [{"ends_with": "", "texts": ["answer"]}]
    script.write_text(json.dumps({"rules": rules, "log": str(folder / "model.log")}))
    wire, rng = LspWire([sys.executable, "-m", "tests.support.scripted_server", str(script)]), random.Random(seed)
    wire.open("file:///large.py", text)
    while wire.complete("file:///large.py", 0, 0) is None:
        time.sleep(0.05)
    lines, times_ms = [len(line) for line in text.split("\n")], []
    longest = lines.index(max(lines))
    for _ in range(num_keys):
        line = longest if lines[longest] > len(_LINE) else rng.randrange(len(lines))
        character = rng.randint(0, lines[line])
        started_at = time.perf_counter()
        wire.insert("file:///large.py", line, character, "n")
        wire.complete("file:///large.py", line, character + 1)
        times_ms.append((time.perf_counter() - started_at) * 1000)
        lines[line] += 1
    wire.leave()
    return times_ms
