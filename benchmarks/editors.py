"""What people notice in their editors: wrong characters, requests that were not needed, repeats, time and memory.

- steps, mismatches: random editing in real editors. After each step, the buffer is the text that the language server
  has, and what the editor shows is what the language server said for that text.
- typed ahead: keys that follow the shown suggestion and cause no request to the completion server.
- repeats, indentation: suggestions in seeded gaps of held-out files that repeat the text after the cursor, or whose
  lines are indented otherwise than the file: with four blanks, tabs or two blanks.
- situations, looping: ordinary situations, and in how many of them the suggestion repeats itself; its share among them
  and suggestions in held-out files; and the share of real code that would count as a loop.
- rest of line: cursors inside a word of held-out files with code after it, where the suggestion is the rest of the word
  and no more; and where the word is right.
- right with and without context: names that another open file declares, with and without its declarations in the
  request; and names that the text before the cursor contains, which must not suffer.
- start, memory, key: of the language server, without the completion server.
- hanging git, slow disk: keys while Git never answers, and while each look at a file takes 5 ms and Git 0.2 s. There
  are 20 open files and 10,000 rules; while it is not known whether one excludes the file, the answer is that nothing
  is sent.
- secret forms: how many forms of secrets are sent, of those that the rules were written for; the share that is replaced
  of those that no rule was written for; and what is replaced in 1,000 lines of held-out files, which have no secrets.

    python -m benchmarks.editors [--output FOLDER] [--only PART ...]
"""

import asyncio
import random
import statistics
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.corpora.cuts import GapKind, draw_gaps
from benchmarks.measures.first_look import measure_first_look
from benchmarks.measures.lsp_process import measure_large_file_ms, measure_memory_mb, measure_rules_ms, measure_start_s
from benchmarks.measures.related_names import measure_related
from benchmarks.measures.report import Figures, Target, find_percentile, run_parts
from benchmarks.measures.suggestions import STYLES, fill_gaps, indent_with, measure_typed_ahead
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
_NUM_GAPS = 1000
_NUM_FOLLOWED = 150  # suggestions that are typed
_SEED = 1

_TARGETS = (
    *(Target(f"{editor}_mismatches", f"wrong texts in {editor}", at_most=0) for editor in _STEPS),
    *(Target(f"{editor}_steps", f"random steps in {editor}", at_least=steps) for editor, (steps, _) in _STEPS.items()),
    Target("typed_ahead_share", "keys that follow a suggestion and cause no request", at_least=0.95),
    Target("suffix_repeats", "suggestions that repeat the text after the cursor", at_most=0),
    Target("indent_mismatches", "suggestions that are indented otherwise", at_most=0),
    Target("looping", "situations in which the suggestion repeats itself", at_most=0),
    Target("looping_share", "suggestions that repeat themselves", at_most=0.01),
    Target("real_code_cut_share", "real code that would count as a loop", at_most=0.001),
    Target("rest_of_line_cuts", "cursors inside a word with code after it", at_least=400),
    Target("rest_of_line_right", "of them, suggestions that are the rest of the word", at_least=0.6),
    Target("right_with_context", "names of other open files that are right; without these, 0.26", at_least=0.3),
    Target("start_s", "start of the language server, s", at_most=1),
    Target("memory_mb", "its memory, MB", at_most=100),
    Target("key_ms_5mb_p99", "99 of 100 keys in a large file, ms", at_most=10),
    Target("key_ms_hanging_git_p99", "the same while Git hangs, ms", at_most=10),
    Target("key_ms_slow_disk_p99", "the same on a slow disk, ms", at_most=10),
    Target("secret_forms_sent", "forms of secrets that are sent", at_most=0),
    Target("secret_forms_unseen", "forms without a rule that are replaced", at_least=0.9),
    Target("false_alarms_per_1000_lines", "false alarms in 1,000 lines", at_most=0.5),
)


def main() -> None:
    parts: dict[str, Callable[[], Figures]] = {
        "process": lambda: asyncio.run(_measure_process()),
        "rules": lambda: asyncio.run(_measure_rules()),
        "server": lambda: asyncio.run(_measure_with_server()),
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
        plays: dict[str, Callable[[Path, int, int, str], Outcome]] = {
            "neovim": neovim.play,
            "helix": helix.play,
            "vscode": partial(vscode.play, folder / "extensions"),
        }

        def play(seed: int, steps: int) -> Outcome:
            return plays[editor](folder / str(seed), seed, steps, ("\n", "\r\n")[seed % 2])

        outcome = run_replays(play, num_steps, first_seed, num_each)
    print(outcome.counts, *outcome.mismatches, sep="\n\n")
    return {f"{editor}_steps": outcome.counts.steps, f"{editor}_mismatches": len(outcome.mismatches)}


async def _measure_process() -> Figures:
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        times_ms = await measure_large_file_ms(Path(folder), random.Random(_SEED))
    by_kind = {name: find_percentile(times, 99) or 0.0 for name, times in times_ms.items()}
    print("99 of 100 keys in ms:", ", ".join(f"{name}: {time_ms:.1f}" for name, time_ms in by_kind.items()))
    return {"start_s": await measure_start_s(), "key_ms_5mb_p99": max(by_kind.values())}


async def _measure_rules() -> Figures:
    figures = {}
    for name, git, server in (
        ("hanging_git", "exec sleep 1000", "tests.support.scripted_server"),
        ("slow_disk", 'sleep 0.2; exec git "$@"', "benchmarks.measures.slow_disk"),
    ):
        with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
            times_ms = await measure_rules_ms(Path(folder).resolve(), git, server)
        print(f"{name}: median {statistics.median(times_ms):.1f} ms, longest {max(times_ms):.1f} ms")
        figures[f"key_ms_{name}_p99"] = find_percentile(times_ms, 99)
    return figures


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


async def _measure_with_server() -> Figures:
    files = list(iter_held_out())
    counts = dict.fromkeys(GapKind, _NUM_GAPS // 3) | {GapKind.LINE: _NUM_GAPS - 2 * (_NUM_GAPS // 3)}
    gaps = draw_gaps(files, counts, _SEED)
    styled = [(indent_with(gap, STYLES[index % 3]), STYLES[index % 3]) for index, gap in enumerate(gaps)]
    followed = draw_gaps(files, {GapKind.IDENTIFIER: _NUM_FOLLOWED, GapKind.LINE: 0, GapKind.BLOCK: 0}, _SEED)
    async with run_triton(EngineConfig(find_default_model(), num_threads=2)) as url:
        filled = await fill_gaps(url, styled)
        with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
            typed_ahead_share = await measure_typed_ahead(url, followed, Path(folder))
        memory_mb = await measure_memory_mb(url, [file.text for file in files[:20]], random.Random(_SEED))
    print(f"{sum(bool(each.text) for each in filled)} of {len(filled)} gaps have a suggestion")
    for each in filled:
        if each.repeats_suffix or each.is_indented_otherwise:
            print("repeats:" if each.repeats_suffix else "indentation:", repr((each.gap.prefix[-80:], each.text)))
            print("    before", repr(each.gap.suffix[:60]))
    return {
        "suffix_repeats": sum(each.repeats_suffix for each in filled),
        "indent_mismatches": sum(each.is_indented_otherwise for each in filled),
        "typed_ahead_share": typed_ahead_share,
        "memory_mb": memory_mb,
    }


if __name__ == "__main__":
    main()
