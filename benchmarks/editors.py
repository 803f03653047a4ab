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

Figures of parts that are not run (`--only`) stay as they were.
"""

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.corpora.cuts import GapKind, draw_gaps
from benchmarks.measures.first_look import measure_first_look
from benchmarks.measures.lsp_process import measure_large_file_ms, measure_memory_mb, measure_rules_ms, measure_start_s
from benchmarks.measures.related_names import draw_related_cuts, find_right_share, measure_related
from benchmarks.measures.report import find_percentile, print_rows, read_figures, write_report
from benchmarks.measures.suggestions import STYLES, fill_gaps, indent_with, measure_typed_ahead
from benchmarks.measures.triton import run_triton
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from lsp_server.privacy.redaction import Redactor
from models.training.corpus import iter_held_out
from tests.support.replay import helix, neovim, vscode
from tests.support.replay.steps import Outcome, draw_seed, run_replays
from tests.support.secret_forms import SECRETS, Secret, count_secret_bytes
from tests.support.unseen_secrets import UNSEEN

_PARTS = ("process", "rules", "server", "neovim", "helix", "vscode", "context", "first_look", "secrets")
Figures = Mapping[str, float | bool | None]

_STEPS_EACH = {"neovim": 150, "helix": helix.STEPS_EACH, "vscode": vscode.STEPS_EACH}  # of a replay

_BARS = {
    "neovim_mismatches": "0",
    "vscode_mismatches": "0",
    "helix_mismatches": "0",
    "neovim_steps": "≥ 3,000",
    "vscode_steps": "≥ 1,200",
    "helix_steps": "≥ 1,000",
    "typed_ahead_share": "≥ 0.95",
    "suffix_repeats": "0",
    "indent_mismatches": "0",
    "looping": "0",
    "looping_share": "≤ 0.01",
    "real_code_cut_share": "≤ 0.001",
    "rest_of_line_cuts": "≥ 400",
    "rest_of_line_right": "≥ 0.6",
    "right_with_context": "more than without",
    "start_s": "≤ 1",
    "memory_mb": "≤ 100",
    "key_ms_5mb_p99": "≤ 10",
    "key_ms_hanging_git_p99": "≤ 10",
    "key_ms_slow_disk_p99": "≤ 10",
    "secret_forms_sent": "0",
    "secret_forms_unseen": "≥ 0.9",
    "false_alarms_per_1000_lines": "≤ 0.5",
}


def main() -> None:
    options = _parse_options()
    parts: dict[str, Callable[[], Figures]] = {
        "process": lambda: asyncio.run(_measure_process(options)),
        "rules": lambda: asyncio.run(_measure_rules(options)),
        "server": lambda: asyncio.run(_measure_with_server(options)),
        "neovim": lambda: _replay("neovim", options.neovim_steps, options.replay_seed),
        "helix": lambda: _replay("helix", options.helix_steps, options.replay_seed),
        "vscode": lambda: _replay("vscode", options.vscode_steps, options.replay_seed),
        "context": lambda: _measure_context(options),
        "first_look": lambda: _measure_first_look(options),
        "secrets": _measure_secrets,
    }
    figures = dict(read_figures("editors"))
    for name in options.only or parts:
        figures |= parts[name]()
        rows = [{"figure": name, "bar": _BARS.get(name, "–"), "measured": value} for name, value in figures.items()]
        write_report("editors", rows, figures)
    print_rows("Editors", rows)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/default"))
    parser.add_argument("--neovim-steps", type=int, default=3000, help="20 replays of 150, each with its own seed")
    parser.add_argument("--vscode-steps", type=int, default=1200)
    parser.add_argument("--helix-steps", type=int, default=1000)
    parser.add_argument("--gaps", type=int, default=1000)
    parser.add_argument("--followed", type=int, default=150, help="suggestions that are typed")
    parser.add_argument("--keys", type=int, default=300, help="keys in large files")
    parser.add_argument("--keys-beside-rules", type=int, default=1000, help="keys while rules are slow")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay-seed", type=int, default=draw_seed(), help="a new one by default")
    parser.add_argument("--only", nargs="+", choices=_PARTS)
    parser.add_argument("--cursors", type=int, default=400, help="random cursors in held-out files")
    parser.add_argument("--cuts", type=int, default=400, help="cursors inside a word with code after it")
    parser.add_argument("--real", type=int, default=20_000, help="cursors whose real text is read")
    parser.add_argument("--new-names", type=int, default=400)
    parser.add_argument("--known-names", type=int, default=400)
    return parser.parse_args()


def _replay(editor: str, num_steps: int, seed: int) -> Figures:
    """Random editing in a real editor, which `make bench-editors` builds. Line ends are of both kinds, in turn."""
    print(f"{editor}, from seed {seed}")
    with tempfile.TemporaryDirectory(prefix="midtoken-") as name:
        folder = Path(name)
        plays: dict[str, Callable[[Path, int, int, str], Outcome]] = {
            "neovim": neovim.play,
            "helix": helix.play,
            "vscode": partial(vscode.play, folder / "extensions"),
        }

        def play(seed: int, steps: int) -> Outcome:
            return plays[editor](folder / str(seed), seed, steps, ("\n", "\r\n")[seed % 2])

        outcome = run_replays(play, num_steps, seed, _STEPS_EACH[editor])
    print(outcome.counts, *outcome.mismatches, sep="\n\n")
    return {f"{editor}_steps": outcome.counts.steps, f"{editor}_mismatches": len(outcome.mismatches)}


async def _measure_process(options: argparse.Namespace) -> Figures:
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        times_ms = await measure_large_file_ms(Path(folder), options.keys, options.seed)
    by_kind = {name: find_percentile(times, 99) or 0.0 for name, times in times_ms.items()}
    print("99 of 100 keys in ms:", ", ".join(f"{name}: {time_ms:.1f}" for name, time_ms in by_kind.items()))
    return {"start_s": await measure_start_s(), "key_ms_5mb_p99": max(by_kind.values())}


async def _measure_rules(options: argparse.Namespace) -> Figures:
    figures = {}
    for name, git, server in (
        ("hanging_git", "exec sleep 1000", "tests.support.scripted_server"),
        ("slow_disk", 'sleep 0.2; exec git "$@"', "benchmarks.measures.slow_disk"),
    ):
        with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
            times_ms = await measure_rules_ms(Path(folder).resolve(), git, server, options.keys_beside_rules)
        print(f"{name}: median {statistics.median(times_ms):.1f} ms, longest {max(times_ms):.1f} ms")
        figures[f"key_ms_{name}_p99"] = find_percentile(times_ms, 99)
    return figures


def _measure_first_look(options: argparse.Namespace) -> Figures:
    with closing(load_engine(EngineConfig(options.model, num_threads=1))) as engine:
        files = list(iter_held_out())
        return measure_first_look(engine, files, options.cursors, options.cuts, options.real, options.seed)


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


def _measure_context(options: argparse.Namespace) -> Figures:
    cuts = draw_related_cuts(options.new_names, options.known_names, options.seed)
    engine = load_engine(EngineConfig(options.model, num_threads=1))
    outcomes = measure_related(engine, cuts)
    engine.close()
    new = [each for each in outcomes if each.is_new]
    known = [each for each in outcomes if not each.is_new]
    return {
        "num_new_names": len(new),
        "right_with_context": round(find_right_share(new, True), 4),
        "right_without_context": round(find_right_share(new, False), 4),
        "num_known_names": len(known),
        "known_right_with_context": round(find_right_share(known, True), 4),
        "known_right_without_context": round(find_right_share(known, False), 4),
        "key_ms_with_context": round(statistics.median(each.ms_with for each in outcomes), 1),
        "key_ms_without_context": round(statistics.median(each.ms_without for each in outcomes), 1),
    }


async def _measure_with_server(options: argparse.Namespace) -> Figures:
    files = list(iter_held_out())
    counts = dict.fromkeys(GapKind, options.gaps // 3)
    counts[GapKind.LINE] += options.gaps - sum(counts.values())
    gaps = draw_gaps(files, counts, options.seed)
    styled = [(indent_with(gap, STYLES[index % 3]), STYLES[index % 3]) for index, gap in enumerate(gaps)]
    followed = draw_gaps(files, {GapKind.IDENTIFIER: options.followed, GapKind.LINE: 0, GapKind.BLOCK: 0}, options.seed)
    async with run_triton(EngineConfig(options.model.resolve(), num_threads=2)) as url:
        filled = await fill_gaps(url, styled)
        with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
            typed_ahead_share = await measure_typed_ahead(url, followed, Path(folder))
        texts = [file.text for file in files[:20]]
        memory_mb = await measure_memory_mb(url, texts, 200, options.seed)
    print(f"{sum(bool(each.text) for each in filled)} of {len(filled)} gaps have a suggestion")
    for each in filled:
        if each.repeats_suffix or each.is_indented_otherwise:
            print("repeats:" if each.repeats_suffix else "indentation:", repr((each.gap.prefix[-80:], each.text)))
            print("    before", repr(each.gap.suffix[:60]))
    return {
        "suffix_repeats": sum(each.repeats_suffix for each in filled),
        "indent_mismatches": sum(each.is_indented_otherwise for each in filled),
        "typed_ahead_share": round(typed_ahead_share, 4),
        "memory_mb": memory_mb,
    }


if __name__ == "__main__":
    main()
