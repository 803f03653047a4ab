"""What people notice in their editors: wrong characters, loops, missing context, time, memory, and what is sent.

- visible: at how many keys there is ghost text in Neovim when the next key comes, 150 ms later.
- steps, mismatches: random editing in Neovim. After each step, the buffer is the text that the language server has, and
  the ghost text is what the language server said for that text.
- situations, looping: ordinary situations, and in how many of them the suggestion repeats itself; its share among them
  and suggestions in held-out files; and the share of real code that would count as a loop.
- unbalanced: of all these suggestions, those with which more brackets or strings of the cursor's line are left open.
- rest of line: cursors inside a word of held-out files with code after it, where the suggestion is the rest of the word
  and no more; and where the word is right.
- right with and without context: names that another open file declares, with and without its declarations in the
  request; and names that the text before the cursor contains, which must not suffer.
- start, memory, key: of the language server, without the completion server.
- secret forms: how many forms of secrets are sent, of those that the rules were written for; the number of those that
  no rule was written for, and the share of them that is replaced.
- false refusals: keys in ordinary code of seven languages at which nothing is sent, because the cursor seems to be in a
  secret, before a server here or elsewhere; and what is replaced in such code.
- lookups of foreign hosts: names that midtoken and its libraries look up, and other machines that they send something
  to, in sessions with both runtimes, each runner, and a model of a hub. Only root can watch that.

    python -m benchmarks.editors [--output FOLDER] [--only PART ...]
"""

import asyncio
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.measures.false_alarms import measure_false_alarms
from benchmarks.measures.first_look import measure_first_look
from benchmarks.measures.lsp_client import LANGUAGE_SERVER, LspClient
from benchmarks.measures.neovim_typing import measure_typing
from benchmarks.measures.related_names import measure_related
from benchmarks.measures.report import Figures, Target, find_percentile, run_parts
from benchmarks.measures.triton import run_triton
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import CompletionEngine
from lsp_server.privacy.redaction import Redactor
from midtoken.installed import find_default_model
from models.training.corpus import iter_held_out
from tests.support.replay import neovim
from tests.support.replay.steps import draw_seed, run_replays
from tests.support.secret_forms import SECRETS, Secret, count_secret_bytes
from tests.support.unseen_secrets import UNSEEN
from tests.support.whole_run import watch_whole_run

_NUM_STEPS = 3000
_SEED = 1
_NUM_STARTS, _NUM_COMPLETIONS, _NUM_KEYS = 11, 200, 300
_URI = "file:///large.py"
_LINE = "    value = compute(first, second)  # a line of some sixty bytes\n"

_TARGETS = (
    Target("neovim_mismatches", "wrong texts in Neovim", at_most=0),
    Target("neovim_steps", "random steps in Neovim", at_least=_NUM_STEPS),
    Target("neovim_visible_share_150ms", "keys with ghost text in Neovim, at 150 ms a key", at_least=0.9),
    Target("looping", "situations in which the suggestion repeats itself", at_most=0),
    Target("unbalanced", "suggestions that leave brackets or strings of the line open or surplus", at_most=0),
    Target("looping_share", "suggestions that repeat themselves", at_most=0.01),
    Target("real_code_cut_share", "real code that would count as a loop", at_most=0.001),
    Target("rest_of_line_cuts", "cursors inside a word with code after it", at_least=400),
    Target("rest_of_line_right", "of them, suggestions that are the rest of the word", at_least=0.6),
    Target("right_with_context", "names of other open files that are right; without these, 0.26", at_least=0.3),
    Target("start_s", "start of the language server, s", at_most=1),
    Target("memory_mb", "its memory, MB", at_most=100),
    Target("key_ms_5mb_p99", "99 of 100 keys in a large file, ms", at_most=10),
    Target("secret_forms_sent", "forms of secrets that are sent", at_most=0),
    Target("secret_forms_unseen", "forms without a rule", at_least=150),
    Target("secret_forms_unseen_replaced", "of them, those that are replaced", at_least=0.85),
    Target("false_refusal_keys", "keys typed in ordinary code", at_least=50_000),
    Target("false_refusal_languages", "languages of it", at_least=5),
    Target("false_refusals", "keys at which it is taken for a secret", at_most=0),
    Target("false_replacements", "what is replaced in it; one is the token of an example", at_most=1),
    Target("lookups_of_foreign_hosts", "names looked up, and other machines that something was sent to", at_most=0),
)


def main() -> None:
    parts: dict[str, Callable[[], Figures]] = {
        "process": lambda: {
            "start_s": asyncio.run(_measure_start_s()),
            "key_ms_5mb_p99": asyncio.run(_measure_key_ms()),
        },
        "memory": lambda: asyncio.run(_measure_memory()),
        "neovim": _replay,
        "typing": lambda: asyncio.run(measure_typing()),
        "context": partial(_measure_engine, measure_related),
        "first_look": partial(_measure_engine, measure_first_look),
        "secrets": _measure_secrets,
        "hosts": _count_foreign_hosts,
        "false_alarms": measure_false_alarms,
    }
    run_parts("editors", parts, _TARGETS)


def _replay() -> Figures:
    """Random editing in Neovim. Line ends are of both kinds, in turn."""
    first_seed = draw_seed()
    print(f"from seed {first_seed}")
    with tempfile.TemporaryDirectory(prefix="midtoken-") as name:
        folder = Path(name)
        outcome = run_replays(lambda seed, steps: neovim.play(folder / str(seed), seed, steps), _NUM_STEPS, first_seed)
    print(outcome.counts, *outcome.mismatches, sep="\n\n")
    return {"neovim_steps": outcome.counts.steps, "neovim_mismatches": len(outcome.mismatches)}


async def _measure_start_s() -> float:
    """The median time from the start of the language server's process to its answer to `initialize`."""
    times_s = []
    for _ in range(_NUM_STARTS):
        started_at = time.perf_counter()
        client = await LspClient.start(LANGUAGE_SERVER)
        times_s.append(time.perf_counter() - started_at)
        await client.leave()
    return statistics.median(times_s)


async def _measure_key_ms() -> float:
    """The time of 99 of 100 keys, each an edit and a request, in the kind of large file where they are slower.

    The model answers at once, so that the time is that of the language server.
    """
    texts = {
        "5 MB in lines": _LINE * (5_000_000 // len(_LINE)),
        "a line of 1 MB": _LINE * 1000 + "x = [" + "1234567, " * (1_000_000 // 9) + "]\n" + _LINE * 1000,
    }
    rng = random.Random(_SEED)
    by_kind = {name: find_percentile(await _press_keys(text, rng), 99) or 0.0 for name, text in texts.items()}
    print("99 of 100 keys in ms:", ", ".join(f"{name}: {time_ms:.1f}" for name, time_ms in by_kind.items()))
    return max(by_kind.values())


async def _press_keys(text: str, rng: random.Random) -> list[float]:
    with tempfile.NamedTemporaryFile("w") as script:
        json.dump({"rules": [{"ends_with": "", "texts": ["answer"]}], "log": os.devnull}, script)
        script.flush()
        client = await LspClient.start([sys.executable, "-m", "tests.support.scripted_server", script.name])
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


def _measure_engine(measure: Callable[[CompletionEngine, int], Figures]) -> Figures:
    with closing(load_engine(EngineConfig(find_default_model(), num_threads=1))) as engine:
        return measure(engine, _SEED)


def _measure_secrets() -> Figures:
    redactor = Redactor()

    def is_sent(secret: Secret) -> bool:
        return count_secret_bytes([redactor.redact(secret.text)], [secret.secret]) > 0

    return {
        "secret_forms_sent": sum(map(is_sent, SECRETS)),
        "secret_forms_unseen": len(UNSEEN),
        "secret_forms_unseen_replaced": 1 - statistics.mean(map(is_sent, UNSEEN)),
    }


def _count_foreign_hosts() -> Figures:
    seen = watch_whole_run()
    if seen.status != 0:
        raise RuntimeError(f"the watched run has failed: {seen.output}")
    return {"lookups_of_foreign_hosts": len(seen.hosts)}


async def _measure_memory() -> Figures:
    """The resident memory of the language server, in 10⁶ bytes, after completions in held-out files."""
    rng, texts = random.Random(_SEED), [file.text for file in itertools.islice(iter_held_out(), 20)]
    async with run_triton(EngineConfig(find_default_model(), num_threads=2)) as url:
        client = await LspClient.start([*LANGUAGE_SERVER, "--server", url])
        for index, text in enumerate(texts):
            client.open(f"file:///project/{index}.py", text)
        for _ in range(_NUM_COMPLETIONS):
            index = rng.randrange(len(texts))
            lines = texts[index].split("\n")
            line = rng.randrange(len(lines))
            await client.complete(f"file:///project/{index}.py", line, rng.randint(0, len(lines[line])))
        status = Path(f"/proc/{client.process.pid}/status").read_text()
        await client.leave()
    return {"memory_mb": int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6}


if __name__ == "__main__":
    main()
