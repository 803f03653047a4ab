"""What became of the requests of one phase of a load, over all editors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.measures.load.editor import Attempt, Outcome
from benchmarks.measures.report import Row, find_percentile


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """The attempts of each editor in one phase."""

    name: str
    duration_s: float
    by_editor: Sequence[Sequence[Attempt]]

    @property
    def attempts(self) -> list[Attempt]:
        """Those of all editors."""
        return [attempt for attempts in self.by_editor for attempt in attempts]

    @property
    def completed_per_s(self) -> float:
        """The goodput."""
        return self.count(Outcome.COMPLETED) / self.duration_s

    @property
    def shares(self) -> list[float]:
        """Each editor's completed requests, relative to its fair share: as many as each other editor has."""
        counts = [sum(each.outcome is Outcome.COMPLETED for each in attempts) for attempts in self.by_editor]
        fair = sum(counts) / len(counts)
        return [count / fair if fair else 0.0 for count in counts]

    @property
    def first_text_ms(self) -> list[float]:
        """How long those requests waited for their first text that got one."""
        return [1e3 * (each.first_text_at - each.sent_at) for each in self.attempts if each.first_text_at is not None]

    @property
    def refused_ms(self) -> list[float]:
        """How long it took to be refused."""
        return [1e3 * (each.ended_at - each.sent_at) for each in self.attempts if each.outcome is Outcome.REFUSED]

    def count(self, outcome: Outcome) -> int:
        """Returns how many requests ended like that."""
        return sum(each.outcome is outcome for each in self.attempts)

    def build_row(self, capacity_per_s: float | None = None) -> Row:
        """The phase as a row of the printed table."""
        shares = self.shares
        return {
            "load": self.name,
            "editors": len(self.by_editor),
            "requests": len(self.attempts),
            **{str(outcome): self.count(outcome) for outcome in Outcome},
            "completed/s": self.completed_per_s,
            "of capacity, %": 100 * self.completed_per_s / capacity_per_s if capacity_per_s else None,
            "first text ms, p50": find_percentile(self.first_text_ms, 50),
            "p99": find_percentile(self.first_text_ms, 99),
            "refused ms, p99": find_percentile(self.refused_ms, 99),
            "least share": min(shares),
            "greatest": max(shares),
        }


@dataclass(frozen=True, slots=True)
class LoadResult:
    """All phases: closed loops, the last one of all editors; rounds of all editors at once; open loops at 1,
    1.3 and 3 times the capacity; and patient clients at 3 times the capacity.
    """

    closed: Sequence[PhaseResult]
    at_once: Sequence[PhaseResult]
    open: tuple[PhaseResult, PhaseResult, PhaseResult]
    patient: PhaseResult

    @property
    def phases(self) -> list[PhaseResult]:
        """All of them, in their order."""
        return [*self.closed, *self.at_once, *self.open, self.patient]

    @property
    def capacity_per_s(self) -> float:
        """The completed answers a second if every editor waits for its answer before it sends the next request."""
        return self.closed[-1].completed_per_s

    def find_figures(self) -> dict[str, float | bool | None]:
        """The figures of the report. `benchmarks.load` explains them."""
        at_capacity, above, far_above = self.open
        refused_ms = [each for phase in (*self.open, self.patient) for each in phase.refused_ms]
        return {
            "capacity_per_s": self.capacity_per_s,
            "goodput_1": at_capacity.completed_per_s / self.capacity_per_s,
            "goodput_1_3": above.completed_per_s / self.capacity_per_s,
            "goodput_3": far_above.completed_per_s / self.capacity_per_s,
            "least_share": min(*above.shares, *far_above.shares),
            "num_refused": len(refused_ms),
            "refused_ms_p99": find_percentile(refused_ms, 99),
            "num_failed": sum(phase.count(Outcome.FAILED) for phase in self.phases),
            "at_once_editors": len(self.at_once[0].by_editor),
            "at_once_lost": sum(len(phase.by_editor) - phase.count(Outcome.COMPLETED) for phase in self.at_once),
            "at_once_ratio": max(_find_slowest_ratio(phase) for phase in self.at_once),
        }


def _find_slowest_ratio(phase: PhaseResult) -> float:
    return max(phase.first_text_ms) / median(phase.first_text_ms) if phase.first_text_ms else math.inf
