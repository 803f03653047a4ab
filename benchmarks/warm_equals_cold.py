"""Whether completions are the same with what the engine remembers of earlier requests, and without it.

Replays the keys of `benchmarks.keystrokes` in this process. All of them belong to one tenant, so that each finds what
the keys before it have left. At each key, the same text is also completed for a tenant that was never seen before.
Greedy completions must be the same, unless two tokens are as likely as each other within rounding.

5,000 keys take about 15 minutes. What was found so far is kept in build/warm_equals_cold.json. A run that was ended is
continued from there, by the same command at the same commit; its engine then begins without memory.
"""

import argparse
import dataclasses
import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rich.progress import track

from benchmarks.corpora.held_out_typing import draw_typing
from benchmarks.corpora.sent_requests import identify, iter_requests
from benchmarks.measures.memory_check import MemoryCheck, Pair
from benchmarks.measures.report import find_commit, print_rows, write_report
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.protocol.completion import CompletionRequest

_PROGRESS = Path("build/warm_equals_cold.json")
_SAVING_PERIOD = 50  # keys


def main() -> None:
    options = _parse_options()
    if "tenant" not in {field.name for field in dataclasses.fields(CompletionRequest)}:
        raise SystemExit("the engine remembers nothing between requests, so there is nothing to compare")
    run = {"commit": find_commit(), **{name: str(value) for name, value in vars(options).items()}}
    check = _read_progress(run)
    pairs = itertools.islice(_iter_pairs(options), check.num_keys, options.keys)
    config = EngineConfig(options.model.resolve(), num_threads=options.threads)
    with closing(load_engine(config)) as engine:
        for pair in track(pairs, "completing", options.keys, check.num_keys):
            check.add(engine, pair)
            if check.num_keys % _SAVING_PERIOD == 0:
                _PROGRESS.parent.mkdir(exist_ok=True)
                _PROGRESS.write_text(json.dumps({"run": run, "check": dataclasses.asdict(check)}))
    row = dataclasses.asdict(check)
    print_rows("Warm and cold completions", [row])
    write_report("warm_equals_cold", [row], row)
    _PROGRESS.unlink(missing_ok=True)


def _read_progress(run: dict[str, str]) -> MemoryCheck:
    """What the same run found before it was ended; nothing if there is no such run."""
    if not _PROGRESS.exists():
        return MemoryCheck()
    found = json.loads(_PROGRESS.read_text())
    return MemoryCheck(**found["check"]) if found["run"] == run else MemoryCheck()


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/default"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keys", type=int, default=5_000, help="(default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=12, help="of a completion (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _iter_pairs(options: argparse.Namespace) -> Iterator[Pair]:
    session = draw_typing(options.model, options.keys, options.seed)
    for number, request in enumerate(iter_requests(session)):
        short = dataclasses.replace(request, max_tokens=options.max_tokens)
        yield Pair(identify(short, "typist", ""), identify(short, f"stranger {number}", ""))


if __name__ == "__main__":
    main()
