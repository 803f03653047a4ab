"""What many people at once get from one completion server: completed answers, waits, and a fair share for each.

Simulated editors replay recorded typing (`benchmarks.corpora.typist`), each in a process and over a gRPC connection of
its own, as language servers do. Each key is a request. Real language servers send fewer, because they answer text that
was typed as suggested by themselves; that changes the rate, which is set here anyway.

A request is *completed* if its last chunk arrives before the editor's next key. Then the next key cancels it as editors
do, and it is *superseded*: it does not count, even if its first line was shown. It is *refused* if the server says that
it is overloaded, *cut* if the server ends it at its deadline, and *failed* otherwise. Requests that are running when a
phase ends are not counted.

1. Capacity: editors in a closed loop. Each sends its next request when the last one is answered, and never cancels. The
   completed answers a second of all editors are the capacity.
2. Open loop at 1, 1.3 and 3 times the capacity: all editors type at recorded times, scaled to that rate together,
   whatever the server does. `goodput_1`, `goodput_1_3` and `goodput_3` are the completed answers a second relative to
   the capacity. `least_share` is the least editor's number of completed answers relative to the mean of all editors,
   the lower one of 1.3 and 3 × capacity.
3. Patient clients at 3 times the capacity. They name no document and cancel nothing, so that the queue of the server
   fills up. `refused_ms_p99` is how long it then takes to be refused.

All files are long enough to fill the prompt, so that no editor's requests are cheaper than another's.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.corpora.sent_requests import iter_requests
from benchmarks.corpora.typist import draw_typing
from benchmarks.measures.load_editors import Outcome, PhaseResult, TimedRequest, run_editors
from benchmarks.measures.report import Figures, Target, find_percentile, print_rows, write_report
from benchmarks.measures.triton import run_triton
from inference.config import EngineConfig
from midtoken.installed import find_default_model

_NUM_EDITORS = 16
_NUM_KEYS = 600  # recorded for each
_MIN_FILE_TOKENS = 3_000
_CLOSED_S, _OPEN_S, _PATIENT_S = 20.0, 40.0, 10.0

_TARGETS = (
    Target("goodput_1_3", "completed at 1.3 × capacity, relative to the capacity", at_least=0.9),
    Target("goodput_3", "completed at 3 × capacity, relative to the capacity", at_least=0.9),
    Target("least_share", "least editor's share of its fair share", at_least=0.5),
    Target("refused_ms_p99", "until a request is refused, 99 of 100, ms", at_most=50),
)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """A closed loop; open loops at 1, 1.3 and 3 times the capacity; and patient clients at 3 times the capacity."""

    closed: PhaseResult
    open: tuple[PhaseResult, PhaseResult, PhaseResult]
    patient: PhaseResult

    @property
    def phases(self) -> list[PhaseResult]:
        """All of them, in their order."""
        return [self.closed, *self.open, self.patient]

    def find_figures(self) -> Figures:
        """The figures of the report. `benchmarks.load` explains them."""
        _, above, far_above = self.open
        refused_ms = [each for phase in self.phases[1:] for each in phase.refused_ms]
        goodput = [phase.completed_per_s / self.closed.completed_per_s for phase in self.open]
        return {
            "capacity_per_s": self.closed.completed_per_s,
            **dict(zip(("goodput_1", "goodput_1_3", "goodput_3"), goodput, strict=True)),
            "least_share": min(*above.shares, *far_above.shares),
            "num_refused": len(refused_ms),
            "refused_ms_p99": find_percentile(refused_ms, 99),
            "num_failed": sum(phase.count(Outcome.FAILED) for phase in self.phases),
        }


def main() -> None:
    result = asyncio.run(_measure([_record(editor) for editor in range(_NUM_EDITORS)]))
    rows, figures = [phase.build_row() for phase in result.phases], result.find_figures()
    print_rows(f"{_NUM_EDITORS} editors", rows)
    print_rows("Targets", [target.build_row(figures) for target in _TARGETS])
    write_report("load", rows, figures)


def _record(editor: int) -> list[TimedRequest]:
    """The requests of one editor."""
    session = draw_typing(_NUM_KEYS, 1 + editor, _MIN_FILE_TOKENS)
    return [
        TimedRequest(moment.key.gap_s, replace(request, tenant=f"editor {editor}", document=str(moment.key.document)))
        for moment, request in zip(session.iter_edits(), iter_requests(session), strict=True)
    ]


async def _measure(scripts: Sequence[Sequence[TimedRequest]]) -> LoadResult:
    model = EngineConfig(find_default_model(), num_threads=1)
    async with run_triton(model) as url, run_editors(url, scripts) as editors:
        closed = await editors.play_closed(_CLOSED_S)
        capacity_per_s = closed.completed_per_s
        at_capacity, above, far_above = [
            await editors.play_open(f"{load:g} × capacity", load * capacity_per_s, _OPEN_S) for load in (1.0, 1.3, 3.0)
        ]
        patient = await editors.play_open("3 ×, patient", 3 * capacity_per_s, _PATIENT_S, is_patient=True)
    return LoadResult(closed, (at_capacity, above, far_above), patient)


if __name__ == "__main__":
    main()
