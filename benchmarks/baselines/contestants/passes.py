"""Forward passes of one model, timed inside its process, as answers to lines of JSON.

    {"read": 1000, "keep": 500}   forgets everything, reads so many tokens, and forgets those after the first 500
    {"rows": 5}                   forwards a token, or a tree of so many, several times, and keeps none of them

The answer is milliseconds, the median of several passes for `rows`.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

from benchmarks.baselines.contestants.line_protocol import serve_json

_NUM_PASSES = 8


class Passes(Protocol):
    """A model with one sequence."""

    def read(self, token_ids: list[int]) -> None: ...  # forgets what was read before; computes the last logits
    def cut(self, num_tokens: int) -> None: ...
    def forward(self, token_ids: list[int]) -> None: ...  # computes the logits of all rows, and keeps none


def serve_passes(load: Callable[[], Passes], num_tokens: int = 8000) -> None:
    """Loads a model and answers until the standard input ends. `num_tokens`: ids below it are drawn."""
    serve_json(lambda: partial(_answer, load(), Random(0), range(num_tokens)))


def _answer(passes: Passes, random: Random, all_ids: Sequence[int], asked: dict[str, Any]) -> float:
    if "rows" in asked:
        rows = [random.choices(all_ids, k=asked["rows"]) for _ in range(_NUM_PASSES)]
        return statistics.median(_measure_ms(passes.forward, each) for each in rows)
    took_ms = _measure_ms(passes.read, random.choices(all_ids, k=asked["read"]))
    passes.cut(asked["keep"])
    return took_ms


def _measure_ms(run: Callable[[list[int]], None], token_ids: list[int]) -> float:
    started_at = time.perf_counter()
    run(token_ids)
    return 1e3 * (time.perf_counter() - started_at)
