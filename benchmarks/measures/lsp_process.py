"""The language server as a process: time to start, memory, and keys in a large file and beside slow rules."""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measures.lsp_client import LANGUAGE_SERVER, LspClient

_NUM_COMPLETIONS, _NUM_KEYS, _NUM_KEYS_BESIDE_RULES = 200, 300, 1000
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


async def measure_rules_ms(folder: Path, git: str, server: str) -> list[float]:
    """Returns the times of keys in 20 open files of a repository with 10,000 rules, half of the files behind a link.

    `git`: what the program `git` does, a line of shell. `server`: the module to run. Each 20 keys are typed in another
    file, and each 50 after a pause in which all that is known of the rules becomes too old.
    """
    uris = _write_repository(folder)
    script = _write_script(folder)
    (folder / "bin").mkdir()
    (folder / "bin" / "git").write_text(f"#!/bin/sh\nPATH={os.environ['PATH']}\n{git}\n")
    (folder / "bin" / "git").chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    client = await LspClient.start([sys.executable, "-m", server, str(script)], environment=environment)
    for uri in uris:
        client.open(uri, "def first(): pass\n")
    times_ms = []
    for key in range(_NUM_KEYS_BESIDE_RULES):
        await asyncio.sleep(1.5 if key % 50 == 49 else 0.03)
        times_ms.append(await _press_key(client, uris[key // 20 % len(uris)], 1, key % 20))
    await client.leave()
    return times_ms


def _write_repository(folder: Path) -> list[str]:
    """Returns the URIs of the files."""
    project = folder / "project"
    kinds = ("generated/file_{}.py", "*.ext{}", "/build{}/", "part{}*.out", "*cache{}*")
    rules = "\n".join(kinds[number % len(kinds)].format(number) for number in range(10_000))
    for number in range(20):
        file = project / f"src/package{number % 4}/module{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (project / ".gitignore").write_text(rules)
    (project / "link").symlink_to("src")
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    tops = ("src", "link")
    return [(project / f"{tops[number % 2]}/package{number % 4}/module{number}.py").as_uri() for number in range(20)]


def _write_script(folder: Path) -> Path:
    """A model that answers at once."""
    script = folder / "script.json"
    rules = [{"ends_with": "", "texts": ["answer"]}]
    script.write_text(json.dumps({"rules": rules, "log": str(folder / "model.log")}))
    return script


async def _press_key(client: LspClient, uri: str, line: int, character: int) -> float:
    """Types a letter and asks. Returns the time until the answer, in ms."""
    started_at = time.perf_counter()
    edit = client.build_edit(uri, (line, character), (line, character), "n")
    await client.complete(uri, line, character + 1, edit)
    return (time.perf_counter() - started_at) * 1000


async def _press_keys(folder: Path, text: str, rng: random.Random) -> list[float]:
    script = _write_script(folder)
    client = await LspClient.start([sys.executable, "-m", "tests.support.scripted_server", str(script)])
    await client.wait_for_server("file:///warm_up.py")
    client.open(_URI, text)
    await client.complete(_URI, 0, 0)
    lines, times_ms = [len(line) for line in text.split("\n")], []
    longest = lines.index(max(lines))
    for _ in range(_NUM_KEYS):
        line = longest if lines[longest] > len(_LINE) else rng.randrange(len(lines))
        character = rng.randint(0, lines[line])
        times_ms.append(await _press_key(client, _URI, line, character))
        lines[line] += 1
    await client.leave()
    return times_ms
