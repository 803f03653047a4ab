"""How long it takes from a key to ghost text, where the time goes, and how much the model reads for a key.

A session in which an editor asks at more than 5,000 keys, over files of 300 to 36,000 tokens, is played to the language
server's own process, over LSP on its pipes; behind it are gRPC, a tritonserver and the engine. How keys are drawn says
`benchmarks.corpora.typist`. The editor sends a key's request at once, without a debounce. All documents stay open.

The session is played in a closed loop: the next key follows when the answer has arrived, and after two seconds at the
latest. Of pauses, 0.4 s are waited: so long the language server has at least to read the text around the cursor before
the next key. So 5,000 keys take minutes, and almost every key has an answer. That is harder than real typing in one
respect: what a model still generates for the key before competes with the next key.

- Times are from the moment the key is sent to the answer, even if that says that there is nothing to suggest. Keys that
  the language server answers without a request to the server are counted apart (`typed_ahead_…`).
- The first key at a place follows a jump, by which each file is opened, or an acceptance. `prefetched_share` of them
  find their context read.
- The layers are those of keys whose answer is the whole completion, `split_share` of those that need the server. The
  first line of a block is answered before the server knows what the whole costs.
- `overhead` is everything but the model.
- `rows` are forwarded until the first token is chosen; their mean is over keys that need the server. `read` are those
  of them that are context. `context_reads_le_1_share` counts keys that need no server too, since they read nothing;
  `served_reads_le_1_share` does not.
"""

import asyncio
import tempfile
from pathlib import Path

from benchmarks.corpora.typing import Session
from benchmarks.corpora.typist import draw_typing
from benchmarks.measures.key_times import KeyTime, build_rows, find_figures, find_key_times
from benchmarks.measures.lsp_client import RECORDED_LANGUAGE_SERVER
from benchmarks.measures.recorded_lsp import read_records
from benchmarks.measures.replay_editor import ReplayEditor
from benchmarks.measures.report import Target, print_rows, write_report
from benchmarks.measures.triton import run_triton
from inference.config import EngineConfig
from midtoken.installed import find_default_model

_NUM_KEYS = 5_500  # at least

_TARGETS = (
    Target("ghost_ms_p50", "key to ghost text, median, ms", at_most=12),
    Target("ghost_ms_p99", "key to ghost text, 99 of 100 keys, ms", at_most=60),
    Target("overhead_ms_p50", "without the model, median, ms", at_most=4),
    Target("overhead_ms_p99", "without the model, 99 of 100 keys, ms", at_most=10),
    Target("first_pass_rows_mean", "rows forwarded until the first token, mean", at_most=1.5),
    Target("context_reads_le_1_share", "keys that read ≤ 1 context token", at_least=0.97),
    Target("prefetched_share", "first keys at a place that find their context read", at_least=0.9),
)


def main() -> None:
    session = draw_typing(_NUM_KEYS, seed=1)
    times = asyncio.run(_play(session))
    rows, figures = build_rows(times), find_figures(times)
    print_rows(f"{len(times):,} keys in ms", rows)
    print_rows("Targets", [target.build_row(figures) for target in _TARGETS])
    write_report("keystrokes", rows, figures)


async def _play(session: Session) -> list[KeyTime]:
    config = EngineConfig(find_default_model(), num_threads=1)
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        path = Path(folder) / "record.json"
        async with run_triton(config) as url:
            command = [*RECORDED_LANGUAGE_SERVER, "--server", url, "--record", str(path)]
            editor = await ReplayEditor.start(command, session)
            pressed = await editor.play(session)
            await editor.leave()
        records = read_records(path)
    return find_key_times(session.iter_edits(), pressed, records)


if __name__ == "__main__":
    main()
