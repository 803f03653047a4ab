"""What many people at once get from one completion server: completed answers, waits, and a fair share for each.

Simulated editors replay recorded typing (`benchmarks.corpora.typist`), each in a process and over a gRPC connection of
its own, as language servers do. Each key is a request. Real language servers send fewer, because they answer text that
was typed as suggested by themselves; that changes the rate, which is set here anyway.

A request is *completed* if its last chunk arrives before the editor's next key. Then the next key cancels it as editors
do, and it is *superseded*: it does not count, even if its first line was shown. It is *refused* if the server says that
it is overloaded, *cut* if the server ends it at its deadline, and *failed* otherwise. Requests that are running when a
phase ends are not counted.

1. Capacity: editors in a closed loop. Each sends its next request when the last one is answered, and never cancels. The
   completed answers a second of all editors are the capacity. Those of one editor are shown beside it; other editors
   type other texts, so they are no measure of how it grows.
2. Open loop at 1, 1.3 and 3 times the capacity: all editors type at recorded times, scaled to that rate together,
   whatever the server does. `goodput_1`, `goodput_1_3` and `goodput_3` are the completed answers a second relative to
   the capacity. `least_share` is the least editor's number of completed answers relative to the mean of all editors,
   the lower one of 1.3 and 3 × capacity.
3. Patient clients at 3 times the capacity. They name no document and cancel nothing, so that the queue of the server
   fills up. `refused_ms_p99` is how long it then takes to be refused.

All files are long enough to fill the prompt, so that no editor's requests are cheaper than another's.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.corpora.sent_requests import iter_requests
from benchmarks.corpora.typist import draw_typing
from benchmarks.measures.load_editors import Outcome, PhaseResult, TimedRequest, run_editors
from benchmarks.measures.report import find_percentile, print_rows, write_report
from benchmarks.measures.triton import run_triton
from inference.config import EngineConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MIN_FILE_TOKENS = 3_000
_PATIENT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LoadResult:
    """All phases: closed loops, the last one of all editors; open loops at 1, 1.3 and 3 times the capacity; and
    patient clients at 3 times the capacity.
    """

    closed: Sequence[PhaseResult]
    open: tuple[PhaseResult, PhaseResult, PhaseResult]
    patient: PhaseResult

    @property
    def phases(self) -> list[PhaseResult]:
        """All of them, in their order."""
        return [*self.closed, *self.open, self.patient]

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
        }


def main() -> None:
    options = _parse_options()
    scripts = [_record(options.model, options.keys, options.seed + editor, editor) for editor in range(options.editors)]
    result = asyncio.run(_measure(options, scripts))
    rows = [phase.build_row(result.capacity_per_s) for phase in result.phases]
    print_rows(f"{options.editors} editors; capacity {result.capacity_per_s:.1f} completed answers a second", rows)
    write_report("load", rows, result.find_figures(), _draw(result))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/default"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--editors", type=int, default=16)
    parser.add_argument("--keys", type=int, default=600, help="recorded for each editor (default: %(default)s)")
    parser.add_argument("--closed-seconds", type=float, default=20.0, help="of each closed loop (default: %(default)s)")
    parser.add_argument("--open-seconds", type=float, default=40.0, help="of each open loop (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _record(model: Path, num_keys: int, seed: int, editor: int) -> list[TimedRequest]:
    """The requests of one editor."""
    session = draw_typing(model, num_keys, seed, _MIN_FILE_TOKENS)
    return [
        TimedRequest(moment.key.gap_s, replace(request, tenant=f"editor {editor}", document=str(moment.key.document)))
        for moment, request in zip(session.iter_edits(), iter_requests(session), strict=True)
    ]


async def _measure(options: argparse.Namespace, scripts: Sequence[Sequence[TimedRequest]]) -> LoadResult:
    model = EngineConfig(options.model.resolve(), num_threads=options.threads, dtype=options.dtype)
    async with run_triton(model) as url, run_editors(url, scripts) as editors:
        closed = [await editors.play_closed(number, options.closed_seconds) for number in (1, len(editors))]
        capacity_per_s = closed[-1].completed_per_s
        at_capacity, above, far_above = [
            await editors.play_open(f"{load:g} × capacity", load * capacity_per_s, options.open_seconds)
            for load in (1.0, 1.3, 3.0)
        ]
        patient = await editors.play_open("3 ×, patient", 3 * capacity_per_s, _PATIENT_SECONDS, is_patient=True)
    return LoadResult(closed, (at_capacity, above, far_above), patient)


def _draw(result: LoadResult) -> "Figure":
    from matplotlib.figure import Figure  # here, because only drawing needs it

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [phase.name for phase in result.open]
    base = [0.0] * len(names)
    for outcome in Outcome:
        rates = [phase.count(outcome) / phase.duration_s for phase in result.open]
        if any(rates):
            left.bar(names, rates, bottom=base, label=str(outcome))
            base = [sum(pair) for pair in zip(base, rates, strict=True)]
    left.axhline(result.capacity_per_s, color="black", linewidth=1, linestyle="--", label="capacity")
    left.set_ylabel("requests a second")
    left.legend(frameon=False, fontsize="small")
    right.boxplot([phase.shares for phase in result.open], tick_labels=names, whis=(0, 100))
    right.axhline(0.5, color="black", linewidth=1, linestyle=":")
    right.set_ylim(bottom=0)
    right.set_ylabel("an editor's completed answers / fair share")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
