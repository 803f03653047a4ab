"""Goes on with a part of a benchmark whose process was ended."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.measures.report import track

_FOLDER = Path("build/checkpoints")

_Item = TypeVar("_Item")


def measure_each(name: str, items: Sequence[_Item], measure: Callable[[_Item], Any], commit: str) -> Iterator[Any]:
    """Yields what is measured for each item, as JSON has it, and remembers it until the last one was yielded.

    What an ended run of the same commit remembered is not measured again. `commit` is as in a `Stamp`; with changes
    that are not committed, everything is measured.
    """
    path = _FOLDER / f"{name}-{len(items)}-{commit}.jsonl"
    known = path.read_text().split("\n")[:-1] if path.exists() and commit.isalnum() else []  # the last may be cut off
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in known))
    with path.open("a") as file:
        for number, item in enumerate(track(items, name)):
            if number == len(known):
                known.append(json.dumps(measure(item)))
                print(known[number], file=file, flush=True)
            yield json.loads(known[number])
    path.unlink()
