"""The targets of the benchmarks of speed: two cores, the default model."""

import math
from dataclasses import dataclass

from benchmarks.measures.report import Row, Value, format_number


@dataclass(frozen=True, slots=True)
class Target:
    """The lowest and the highest value that a figure should have."""

    report: str
    figure: str
    meaning: str
    at_least: float = -math.inf
    at_most: float = math.inf

    def is_met(self, value: float) -> bool:
        """True if the value lies between the limits."""
        return self.at_least <= value <= self.at_most

    def describe(self) -> str:
        """The limit as text."""
        return f"≥ {format_number(self.at_least)}" if math.isinf(self.at_most) else f"≤ {format_number(self.at_most)}"


TARGETS = (
    Target("keystrokes", "ghost_ms_p50", "key to ghost text, median, ms", at_most=30),
    Target("keystrokes", "ghost_ms_p99", "key to ghost text, 99 of 100 keys, ms", at_most=80),
    Target("keystrokes", "overhead_ms_p50", "without the model, median, ms", at_most=4),
    Target("keystrokes", "overhead_ms_p99", "without the model, 99 of 100 keys, ms", at_most=10),
    Target("keystrokes", "first_pass_rows_mean", "rows forwarded until the first token, mean", at_most=1.5),
    Target("keystrokes", "context_reads_le_1_share", "keys that read at most one context token", at_least=0.95),
    Target("keystrokes", "long_file_ratio", "time in the longest files, relative to the shortest", at_most=1.2),
    Target("latency", "decode_ms_500", "a decoded token at 500 tokens of context, ms", at_most=1.5),
    Target("latency", "prefill_ms_1000", "reading 1,000 tokens, ms", at_most=170),
    Target("latency", "healing_ms_p99_152k", "healing, 152k tokens in the vocabulary, 99 of 100 keys, ms", at_most=1),
    Target("load", "at_once_lost", "requests lost of 16 at once", at_most=0),
    Target("load", "at_once_ratio", "slowest first text of 16 at once, relative to the median", at_most=3),
    Target("load", "goodput_1_3", "completed at 1.3 × capacity, relative to the capacity", at_least=0.9),
    Target("load", "goodput_3", "completed at 3 × capacity, relative to the capacity", at_least=0.9),
    Target("load", "least_share", "least editor's share of its fair share", at_least=0.5),
    Target("load", "refused_ms_p99", "until a request is refused, 99 of 100, ms", at_most=50),
)


def build_row(target: Target, value: Value) -> Row:
    """The figure beside its target."""
    is_met = target.is_met(value) if isinstance(value, int | float) else None
    return {
        "benchmark": target.report,
        "figure": target.meaning,
        "target": target.describe(),
        "measured": value,
        "met": None if is_met is None else "yes" if is_met else "no",
    }
