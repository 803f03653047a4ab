"""Whether completions are the same with what the engine remembers of earlier requests, and without it.

Replays the keys of `benchmarks.keystrokes` in this process. All of them belong to one tenant, so that each finds what
the keys before it have left. At each key, the same text is also completed for a tenant that was never seen before.
Greedy completions must be the same, unless two tokens are as likely as each other within rounding.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rich.progress import track

from benchmarks.corpora.held_out_typing import draw_typing
from benchmarks.corpora.sent_requests import identify, iter_requests
from benchmarks.measures.memory_check import Pair, check_memory
from benchmarks.measures.report import print_rows, write_report
from inference.config import EngineConfig
from inference.engine.loader import load_engine
from inference.protocol.completion import CompletionRequest


def main() -> None:
    options = _parse_options()
    if "tenant" not in {field.name for field in dataclasses.fields(CompletionRequest)}:
        raise SystemExit("the engine remembers nothing between requests, so there is nothing to compare")
    pairs = list(itertools.islice(_iter_pairs(options), options.keys))
    config = EngineConfig(options.model.resolve(), num_threads=options.threads)
    with closing(load_engine(config)) as engine:
        check = check_memory(engine, track(pairs, "completing"))
    row = dataclasses.asdict(check)
    print_rows("Warm and cold completions", [row])
    write_report("warm_equals_cold", [row], row)


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
