"""What many people at once get from one completion server: completed answers, and waits.

Simulated editors replay recorded typing (`benchmarks.corpora.typist`) at its own pace. Each key is a request. Real
language servers send fewer, because they answer text that was typed as suggested by themselves; that changes the rate,
which is set here anyway, by the number of editors.

A request is *completed* if its last chunk arrives before the editor's next key. Then the next key cancels it as editors
do, and it is *superseded*: it does not count, even if its first line was shown. It is *refused* if the server says that
it is overloaded, *cut* if the server ends it at its deadline, and *failed* otherwise. Requests that are running when a
phase ends are not counted.

1. Capacity: 16 editors in a closed loop. Each sends its next request when the last one is answered, and never cancels.
   The completed answers a second of all editors are the capacity.
2. Open loop at 1, 1.3 and 3 times the capacity: so many editors that their keys together come at that rate, each at
   the recorded times, whatever the server does. `goodput_1`, `goodput_1_3` and `goodput_3` are the completed answers a
   second relative to the capacity.
3. Patient clients at 3 times the capacity. They name no document and cancel nothing, so that the queue of the server
   fills up. `refused_ms_p99` is how long it then takes to be refused.

The server has one processor core, the editors have another one, so that neither takes the other's time.

All files are long enough to fill the prompt, so that no editor's requests are cheaper than another's.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence

from lsprotocol.types import Position, Range, TextDocumentContentChangePartial, TextDocumentItem

from benchmarks.corpora.typist import draw_typing
from benchmarks.measures.host import run_host
from benchmarks.measures.load_editors import LoadEditors, PhaseResult, TimedRequest, run_editors
from benchmarks.measures.lsp_client import find_place
from benchmarks.measures.report import Figures, Measured, Target, find_percentile, run_parts, track
from inference.config import EngineConfig
from inference.protocol.completion import Chunks, CompletionRequest
from lsp_server.documents import Document
from lsp_server.session import build_editor_request
from lsp_server.settings import Settings
from midtoken.installed import find_bundled_model

_NUM_EDITORS, _NUM_SHORT_EDITORS = 128, 24
_NUM_KEYS = 150  # recorded for each, what it types in a phase
_MIN_FILE_TOKENS = 3_000
_MEMORY_MIB = 2_048  # for the prompts of all documents
_SECONDS, _SHORT_SECONDS = (20.0, 40.0, 10.0), (3.0, 4.0, 3.0)  # of the closed loop, each open one, the patient one

_TARGETS = (
    Target("goodput_1_3", "completed at 1.3 × capacity, relative to the capacity", at_least=0.85),
    Target("goodput_3", "completed at 3 × capacity, relative to the capacity", at_least=0.85),
    Target("refused_ms_p99", "until a request is refused, 99 of 100, ms", at_most=50),
)


def main() -> None:
    run_parts("load", {"phases": _measure}, _TARGETS)


def _measure(is_short: bool) -> list[Measured]:
    editors = range(_NUM_SHORT_EDITORS if is_short else _NUM_EDITORS)
    scripts = [[*record_typing(editor)] for editor in track(editors, "recording")]
    phases = asyncio.run(_play(scripts, _SHORT_SECONDS if is_short else _SECONDS))
    return [Measured(find_figures(phases), [phase.build_row() for phase in phases])]


def record_typing(editor: int, num_keys: int = _NUM_KEYS) -> Iterator[TimedRequest]:
    """What the language server of one editor would send, if it asked the server at each key."""
    session, settings = draw_typing(num_keys, 1 + editor, _MIN_FILE_TOKENS), Settings()
    texts = [*session.documents]
    items = [TextDocumentItem(str(index), "python", 0, text) for index, text in enumerate(texts)]
    documents = [Document(item) for item in items]
    for moment in session.iter_edits():
        key, document, before = moment.key, documents[moment.key.document], texts[moment.key.document]
        span = Range(Position(*find_place(before, key.start)), Position(*find_place(before, key.end)))
        document.apply([TextDocumentContentChangePartial(range=span, text=key.text)])
        texts[key.document] = moment.text
        context = build_editor_request(document, Position(*find_place(moment.text, key.cursor)), settings).context
        request = CompletionRequest(
            context.prefix,
            context.suffix,
            settings.max_tokens,
            settings.healing,
            extent=settings.extent,
            chunks=Chunks.LINES,
            tenant=f"editor {editor}",
            document=document.uri,
        )
        yield TimedRequest(key.gap_s, request)


async def _play(scripts: Sequence[Sequence[TimedRequest]], seconds: Sequence[float]) -> list[PhaseResult]:
    """A closed loop; open loops at 1, 1.3 and 3 times the capacity; and patient clients at 3 times the capacity."""
    model = EngineConfig(find_bundled_model(), num_threads=1, memory_mib=_MEMORY_MIB)
    server_core, load_core, *_ = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {server_core})  # processes that are started have it, too
    async with run_host(model) as url:
        os.sched_setaffinity(0, {load_core})
        async with run_editors(url, scripts) as editors:
            return await _play_all(editors, *seconds)


async def _play_all(editors: LoadEditors, closed_s: float, open_s: float, patient_s: float) -> list[PhaseResult]:
    closed = await editors.play("closed loop", closed_s)
    capacity_per_s = closed.completed_per_s
    opened = [await editors.play(f"{load:g} × capacity", open_s, load * capacity_per_s) for load in (1.0, 1.3, 3.0)]
    patient = await editors.play("3 ×, patient", patient_s, 3 * capacity_per_s, is_patient=True)
    return [closed, *opened, patient]


def find_figures(phases: Sequence[PhaseResult]) -> Figures:
    """The figures of these five phases."""
    closed, at_capacity, above, far_above, _ = phases
    refused_ms = [each for phase in phases[1:] for each in phase.refused_ms]
    return {
        "capacity_per_s": closed.completed_per_s,
        "goodput_1": at_capacity.completed_per_s / closed.completed_per_s,
        "goodput_1_3": above.completed_per_s / closed.completed_per_s,
        "goodput_3": far_above.completed_per_s / closed.completed_per_s,
        "refused_ms_p99": find_percentile(refused_ms, 99),
    }


if __name__ == "__main__":
    main()
