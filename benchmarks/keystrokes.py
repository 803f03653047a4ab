"""How long it takes from a key to ghost text, where the time goes, and how much the model reads for a key.

A session in which an editor asks at more than 5,000 keys, over files of 300 to 36,000 tokens, is played to the language
server's own process, over LSP on its pipes; behind it are gRPC, the host and the engine. How keys are drawn says
`benchmarks.corpora.typist`. The editor sends a key's request at once, without a debounce. All documents stay open.

The session is played in a closed loop: the next key follows when the answer has arrived, and after two seconds at the
latest. Of pauses, 0.4 s are waited: so long the language server has at least to read the text around the cursor before
the next key. So 5,000 keys take minutes, and almost every key has an answer. That is harder than real typing in one
respect: what a model still generates for the key before competes with the next key.

- Times are from the moment the key is sent to the answer, even if that says that there is nothing to suggest. Keys that
  the language server answers without a request to the server are counted apart (`typed_ahead_…`).
- The first key at a place follows a jump, by which each file is opened, or an acceptance. `prefetched_share` of them
  find their context read.
- The layers are those of keys whose answer is the whole completion. The first line of a block, and what is shown of a
  text that becomes unlikely, are answered before the server knows what the whole costs.
- `overhead` is everything but the model.
- `rows` are forwarded until the first token is chosen; their mean is over keys that need the server. `read` are those
  of them that are context. `context_reads_le_1_share` counts keys that need no server too, since they read nothing.
- `neovim_…` is what a person gets in a real Neovim, from the key to the drawn screen: see
  `benchmarks.measures.neovim_typing`.
"""

import asyncio
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.corpora.typing import Key, Moment, Session
from benchmarks.corpora.typist import draw_typing
from benchmarks.measures.host import run_host
from benchmarks.measures.lsp_client import RECORDED_LANGUAGE_SERVER
from benchmarks.measures.neovim_typing import measure_typing
from benchmarks.measures.recorded_lsp import RequestRecord, read_records
from benchmarks.measures.replay_editor import PressedKey, replay
from benchmarks.measures.report import (
    Figures,
    Measured,
    Target,
    find_mean,
    find_percentile,
    run_parts,
)
from inference.config import EngineConfig
from midtoken.installed import find_bundled_model

_NUM_KEYS, _NUM_SHORT_KEYS = 5_500, 150  # at least

_TARGETS = (
    Target("ghost_ms_p50", "key to ghost text, median, ms", at_most=12),
    Target("ghost_ms_p99", "key to ghost text, 99 of 100 keys, ms", at_most=60),
    Target("overhead_ms_p50", "without the model, median, ms", at_most=4),
    Target("overhead_ms_p99", "without the model, 99 of 100 keys, ms", at_most=10),
    Target("first_pass_rows_mean", "rows forwarded until the first token, mean", at_most=1.5),
    Target("context_reads_le_1_share", "keys that read ≤ 1 context token", at_least=0.97),
    Target("neovim_key_to_ghost_ms_p50", "key to new ghost text on Neovim's screen, median, ms", at_most=40),
    Target("prefetched_share", "first keys at a place that find their context read", at_least=0.9),
)

# The parts of a key's time: with the pipes to the editor; gRPC, the host, the hosted model; in the engine until the
# request runs; with the rest of the prompt; the model; the choice; everything else in the engine.
_LAYERS = ("language server", "wire", "queue", "healing", "model", "choice", "engine")


@dataclass(frozen=True, slots=True)
class KeyTime:
    """One key of a replay, and what is known about its answer."""

    key: Key
    is_answered: bool  # even that there is nothing to suggest
    total_ms: float  # to the answer, or until it was known that there is none
    needs_server: bool  # False: answered from text that was there already
    layers: Mapping[str, float] | None = None  # of an answer that is the whole completion, which alone can be split
    stats: Mapping[str, float] = field(default_factory=dict)  # of the completion, if it is known

    @property
    def overhead_ms(self) -> float | None:
        """Everything but the model; None if that is not known."""
        return None if self.layers is None or not self.layers["model"] else self.total_ms - self.layers["model"]

    @property
    def reads_few(self) -> bool | None:
        """Whether it read at most one token of context; None if that is not known."""
        if not self.needs_server:
            return True
        num_cached = self.stats.get("num_cached_tokens")
        return None if num_cached is None else self.stats["num_context_tokens"] - num_cached <= 1


@dataclass(frozen=True, slots=True)
class Played:
    """A session that was played."""

    times: Sequence[KeyTime]
    records: Sequence[RequestRecord]


def main() -> None:
    config = EngineConfig(find_bundled_model(), num_threads=1)
    run_parts(
        "keystrokes",
        {"replay": partial(_measure_replay, config=config), "neovim": partial(measure_typing, config=config)},
        _TARGETS,
    )


def _measure_replay(is_short: bool, config: EngineConfig) -> list[Measured]:
    session = draw_typing(_NUM_SHORT_KEYS if is_short else _NUM_KEYS, seed=1)

    async def play_once() -> Sequence[KeyTime]:
        async with run_host(config) as url:
            return (await play(url, session)).times

    times = asyncio.run(play_once())
    split = [each.layers for each in times if each.layers is not None]
    return [Measured(find_figures(times), [{layer: find_mean(each[layer] for each in split) for layer in _LAYERS}])]


async def play(url: str, session: Session) -> Played:
    """Plays the session to a new language server at a completion server."""
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        path = Path(folder) / "record.json"
        pressed = await replay([*RECORDED_LANGUAGE_SERVER, "--server", url, "--record", str(path)], session)
        records = read_records(path)
        return Played(find_key_times(session.iter_edits(), pressed, records), records)


def find_key_times(
    moments: Iterable[Moment], pressed: Sequence[PressedKey], records: Sequence[RequestRecord]
) -> list[KeyTime]:
    """Returns the time of each key: what the editor saw, matched with what the language server recorded."""
    moments = list(moments)
    by_key = _match(moments, pressed, records)
    pairs = enumerate(zip(moments, pressed, strict=True))
    return [_build_key_time(moment.key, press, by_key.get(index)) for index, (moment, press) in pairs]


def _match(
    moments: Sequence[Moment], pressed: Sequence[PressedKey], records: Sequence[RequestRecord]
) -> dict[int, RequestRecord]:
    """The last request of each key that made one.

    A request belongs to the last key before it that has its text. The order alone does not tell: the language server
    may start a key's request after the editor has sent the next key.
    """
    found: dict[int, RequestRecord] = {}
    num_before = 0
    for record in sorted((each for each in records if not each.is_prefetch), key=lambda each: each.asked_at):
        while num_before < len(pressed) and pressed[num_before].sent_at <= record.asked_at:
            num_before += 1
        for index in range(num_before - 1, -1, -1):
            if record.is_about(moments[index].prefix, moments[index].suffix):
                found[index] = record
                break
    return found


def _build_key_time(key: Key, press: PressedKey, record: RequestRecord | None) -> KeyTime:
    is_answered, total_ms = press.answer.result is not None, 1e3 * (press.answer.ended_at - press.sent_at)
    if record is None:
        return KeyTime(key, is_answered, total_ms, needs_server=False)
    layers, stats = None, record.stats or {}
    if is_answered and stats and record.chunks_at[-1] <= press.answer.ended_at:  # else it was not whole by then
        server_ms, stream_ms = stats["total_ms"], 1e3 * (record.chunks_at[-1] - record.asked_at)
        healing_ms, model_ms, choice_ms = (stats.get(f"{part}_ms", 0.0) for part in ("prompt", "model", "choice"))
        queue_ms = max(stats["queue_ms"] - healing_ms, 0.0)  # it is healed before it runs
        inside = (queue_ms, healing_ms, model_ms, choice_ms)
        parts = (total_ms - stream_ms, stream_ms - server_ms, *inside, server_ms - sum(inside))
        layers = dict(zip(_LAYERS, parts, strict=True))
    return KeyTime(key, is_answered, total_ms, needs_server=True, layers=layers, stats=stats)


def find_figures(times: Sequence[KeyTime]) -> Figures:
    """The figures of a replay."""
    served = [each for each in times if each.needs_server]
    first = [each for each in times if each.key.is_first]
    first_served = [each for each in first if each.needs_server]
    ahead = [each for each in times if not each.needs_server and each.is_answered]
    overheads = [each.overhead_ms for each in served]
    return {
        "num_keys": len(times),
        "ghost_ms_p50": _find_ms(served, 50),
        "ghost_ms_p99": _find_ms(served, 99),
        "first_pass_rows_mean": find_mean(each.stats.get("num_first_tokens") for each in served),
        "context_reads_le_1_share": find_mean(each.reads_few for each in times),
        "prefetched_share": find_mean(each.reads_few for each in first),
        "first_ms_p50": _find_ms(first_served, 50),
        "first_ms_p99": _find_ms(first_served, 99),
        "typed_ahead_ms_p50": _find_ms(ahead, 50),
        "typed_ahead_ms_p99": _find_ms(ahead, 99),
        "typed_ahead_share": len(ahead) / len(times),
        "overhead_ms_p50": find_percentile(overheads, 50),
        "overhead_ms_p99": find_percentile(overheads, 99),
    }


def _find_ms(times: Sequence[KeyTime], percent: float) -> float | None:
    return find_percentile((each.total_ms for each in times if each.is_answered), percent)


if __name__ == "__main__":
    main()
