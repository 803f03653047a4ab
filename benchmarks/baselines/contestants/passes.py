"""Forward passes of one model, timed inside its process, as answers to lines of JSON.

    {"read": 1000, "keep": 500}   forgets everything, reads so many tokens, and forgets those after the first 500
    {"rows": 5}                   forwards a token, or a tree of so many, several times, and keeps none of them

The answer is milliseconds, the median of several passes for `rows`.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Protocol

_NUM_PASSES = 8


class Passes(Protocol):
    """A model with one sequence."""

    def read(self, token_ids: list[int]) -> None: ...  # forgets what was read before; computes the last logits
    def cut(self, num_tokens: int) -> None: ...
    def forward(self, token_ids: list[int]) -> None: ...  # computes the logits of all rows, and keeps none


def serve_passes(load: Callable[[], Passes], num_tokens: int = 8000) -> None:
    """Loads a model and answers until the standard input ends. `num_tokens`: ids below it are drawn."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    passes, random = load(), Random(0)
    print(file=answers, flush=True)
    for received in sys.stdin:
        asked = json.loads(received)
        if "read" in asked:
            ids = random.choices(range(num_tokens), k=asked["read"])
            times = [_measure_ms(lambda: passes.read(ids))]  # noqa: B023  # called at once
            passes.cut(asked["keep"])
        else:
            rows = [random.choices(range(num_tokens), k=asked["rows"]) for _ in range(_NUM_PASSES)]
            times = [_measure_ms(lambda: passes.forward(each)) for each in rows]  # noqa: B023
        print(json.dumps(statistics.median(times)), file=answers, flush=True)


def _measure_ms(run: Callable[[], None]) -> float:
    started_at = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - started_at)
