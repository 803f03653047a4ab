"""What people notice in their editors: wrong characters, loops, missing context, time, memory, and what is sent.

- steps, mismatches: random editing in real editors. After each step, the buffer is the text that the language server
  has, and what the editor shows is what the language server said for that text.
- situations, looping: ordinary situations, and in how many of them the suggestion repeats itself; its share among them
  and suggestions in held-out files; and the share of real code that would count as a loop.
- rest of line: cursors inside a word of held-out files with code after it, where the suggestion is the rest of the word
  and no more; and where the word is right.
- right with and without context: names that another open file declares, with and without its declarations in the
  request; and names that the text before the cursor contains, which must not suffer.
- start, memory, key: of the language server, without the completion server.
- secret forms: how many forms of secrets are sent, of those that the rules were written for; the share that is replaced
  of those that no rule was written for; and what is replaced in 1,000 lines of held-out files, which have no secrets.

    python -m benchmarks.editors [--output FOLDER] [--only PART ...]
"""

import asyncio
import itertools
import random
import statistics
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.measures.first_look import measure_first_look
from benchmarks.measures.lsp_process import measure_large_file_ms, measure_memory_mb, measure_start_s
from benchmarks.measures.related_names import measure_related
from benchmarks.measures.report import Figures, Target, find_percentile, run_parts
from benchmarks.measures.triton import run_triton
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import CompletionEngine
from lsp_server.privacy.redaction import Redactor
from midtoken.installed import find_default_model
from models.training.corpus import iter_held_out
from tests.support.replay import helix, neovim, vscode
from tests.support.replay.steps import Outcome, draw_seed, run_replays
from tests.support.secret_forms import SECRETS, Secret, count_secret_bytes
from tests.support.unseen_secrets import UNSEEN

# In all, and in each replay, which has its own seed.
_STEPS = {"neovim": (3000, 150), "helix": (1000, helix.STEPS_EACH), "vscode": (1200, vscode.STEPS_EACH)}
_SEED = 1

_TARGETS = (
    *(Target(f"{editor}_mismatches", f"wrong texts in {editor}", at_most=0) for editor in _STEPS),
    *(Target(f"{editor}_steps", f"random steps in {editor}", at_least=steps) for editor, (steps, _) in _STEPS.items()),
    Target("looping", "situations in which the suggestion repeats itself", at_most=0),
    Target("looping_share", "suggestions that repeat themselves", at_most=0.01),
    Target("real_code_cut_share", "real code that would count as a loop", at_most=0.001),
    Target("rest_of_line_cuts", "cursors inside a word with code after it", at_least=400),
    Target("rest_of_line_right", "of them, suggestions that are the rest of the word", at_least=0.6),
    Target("right_with_context", "names of other open files that are right; without these, 0.26", at_least=0.3),
    Target("start_s", "start of the language server, s", at_most=1),
    Target("memory_mb", "its memory, MB", at_most=100),
    Target("key_ms_5mb_p99", "99 of 100 keys in a large file, ms", at_most=10),
    Target("secret_forms_sent", "forms of secrets that are sent", at_most=0),
    Target("secret_forms_unseen", "forms without a rule that are replaced", at_least=0.9),
    Target("false_alarms_per_1000_lines", "false alarms in 1,000 lines", at_most=0.5),
)


def main() -> None:
    parts: dict[str, Callable[[], Figures]] = {
        "process": lambda: asyncio.run(_measure_process()),
        "memory": lambda: asyncio.run(_measure_memory()),
        **{editor: partial(_replay, editor) for editor in _STEPS},
        "context": partial(_measure_engine, measure_related),
        "first_look": partial(_measure_engine, measure_first_look),
        "secrets": _measure_secrets,
    }
    run_parts("editors", parts, _TARGETS)


def _replay(editor: str) -> Figures:
    """Random editing in a real editor, which `make bench-editors` builds. Line ends are of both kinds, in turn."""
    first_seed, (num_steps, num_each) = draw_seed(), _STEPS[editor]
    print(f"{editor}, from seed {first_seed}")
    with tempfile.TemporaryDirectory(prefix="midtoken-") as name:
        folder = Path(name)
        plays: dict[str, Callable[[Path, int, int], Outcome]] = {
            "neovim": neovim.play,
            "helix": helix.play,
            "vscode": partial(vscode.play, folder / "extensions"),
        }

        def play(seed: int, steps: int) -> Outcome:
            return plays[editor](folder / str(seed), seed, steps)

        outcome = run_replays(play, num_steps, first_seed, num_each)
    print(outcome.counts, *outcome.mismatches, sep="\n\n")
    return {f"{editor}_steps": outcome.counts.steps, f"{editor}_mismatches": len(outcome.mismatches)}


async def _measure_process() -> Figures:
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        times_ms = await measure_large_file_ms(Path(folder), random.Random(_SEED))
    by_kind = {name: find_percentile(times, 99) or 0.0 for name, times in times_ms.items()}
    print("99 of 100 keys in ms:", ", ".join(f"{name}: {time_ms:.1f}" for name, time_ms in by_kind.items()))
    return {"start_s": await measure_start_s(), "key_ms_5mb_p99": max(by_kind.values())}


def _measure_engine(measure: Callable[[CompletionEngine, int], Figures]) -> Figures:
    with closing(load_engine(EngineConfig(find_default_model(), num_threads=1))) as engine:
        return measure(engine, _SEED)


def _measure_secrets() -> Figures:
    redactor, texts = Redactor(), [file.text for file in iter_held_out()]

    def is_sent(secret: Secret) -> bool:
        return count_secret_bytes([redactor.redact(secret.text)], [secret.secret]) > 0

    return {
        "secret_forms_sent": sum(map(is_sent, SECRETS)),
        "secret_forms_unseen": 1 - statistics.mean(map(is_sent, UNSEEN)),
        "false_alarms_per_1000_lines": 1000
        * sum(len(redactor.find_spans(text)) for text in texts)
        / sum(text.count("\n") for text in texts),
    }


async def _measure_memory() -> Figures:
    texts = [file.text for file in itertools.islice(iter_held_out(), 20)]
    async with run_triton(EngineConfig(find_default_model(), num_threads=2)) as url:
        return {"memory_mb": await measure_memory_mb(url, texts, random.Random(_SEED))}


if __name__ == "__main__":
    main()
