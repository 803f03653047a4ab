"""The language server as a process: time to start, memory, and keys in a large file."""

import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measures.lsp_client import LANGUAGE_SERVER, LspClient

_NUM_COMPLETIONS, _NUM_KEYS = 200, 300
_URI = "file:///large.py"
_LINE = "    value = compute(first, second)  # a line of some sixty bytes\n"


async def measure_start_s(num_starts: int = 11) -> float:
    """Returns the median time from the start of the process to the answer to `initialize`."""
    times_s = []
    for _ in range(num_starts):
        started_at = time.perf_counter()
        client = await LspClient.start(LANGUAGE_SERVER)
        times_s.append(time.perf_counter() - started_at)
        await client.leave()
    return statistics.median(times_s)


async def measure_memory_mb(address: str, texts: Sequence[str], rng: random.Random) -> float:
    """Returns the resident memory, in 10⁶ bytes, after completions in these files by the server at `address`."""
    client = await LspClient.start([*LANGUAGE_SERVER, "--server", address])
    for index, text in enumerate(texts):
        client.open(f"file:///project/{index}.py", text)
    for _ in range(_NUM_COMPLETIONS):
        index = rng.randrange(len(texts))
        lines = texts[index].split("\n")
        line = rng.randrange(len(lines))
        await client.complete(f"file:///project/{index}.py", line, rng.randint(0, len(lines[line])))
    status = Path(f"/proc/{client.process.pid}/status").read_text()
    await client.leave()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


async def measure_large_file_ms(folder: Path, rng: random.Random) -> dict[str, list[float]]:
    """Returns the times of keys, each an edit and a request, for each kind of file.

    The model answers at once, so that the time is that of the language server.
    """
    texts = {
        "5 MB in lines": _LINE * (5_000_000 // len(_LINE)),
        "a line of 1 MB": _LINE * 1000 + "x = [" + "1234567, " * (1_000_000 // 9) + "]\n" + _LINE * 1000,
    }
    return {name: await _press_keys(folder, text, rng) for name, text in texts.items()}


async def _press_keys(folder: Path, text: str, rng: random.Random) -> list[float]:
    script = folder / "script.json"
    script.write_text(json.dumps({"rules": [{"ends_with": "", "texts": ["answer"]}], "log": str(folder / "model.log")}))
    client = await LspClient.start([sys.executable, "-m", "tests.support.scripted_server", str(script)])
    await client.wait_for_server("file:///warm_up.py")
    client.open(_URI, text)
    await client.complete(_URI, 0, 0)
    lines, times_ms = [len(line) for line in text.split("\n")], []
    longest = lines.index(max(lines))
    for _ in range(_NUM_KEYS):
        line = longest if lines[longest] > len(_LINE) else rng.randrange(len(lines))
        character = rng.randint(0, lines[line])
        started_at = time.perf_counter()
        edit = client.build_edit(_URI, (line, character), (line, character), "n")
        await client.complete(_URI, line, character + 1, edit)
        times_ms.append(1e3 * (time.perf_counter() - started_at))
        lines[line] += 1
    await client.leave()
    return times_ms
