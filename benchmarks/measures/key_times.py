"""Where the time of each key went: what the editor saw, matched with what the language server recorded.

The times of many keys become rows and figures of a report.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.corpora.typing import Key, KeyKind, Moment
from benchmarks.measures.recorded_lsp import RequestRecord
from benchmarks.measures.replay_editor import Outcome, PressedKey
from benchmarks.measures.report import Row, Value, find_mean, find_percentile


class Layer(StrEnum):
    """A part of a key's time. All layers together are the time from the key to the answer."""

    LANGUAGE_SERVER = "language server"  # with its pipes to the editor
    WIRE = "wire"  # gRPC, tritonserver, the adapter
    QUEUE = "queue"  # in the engine, until the request runs
    HEALING = "healing"  # and the rest of the prompt
    MODEL = "model"
    CHOICE = "choice"
    ENGINE = "engine"  # everything else in it


@dataclass(frozen=True, slots=True)
class KeyTime:
    """One key of a replay, and what is known about its answer."""

    key: Key
    outcome: Outcome
    total_ms: float  # to the answer, or until it was known that there is none
    needs_server: bool  # False: answered from text that was there already
    layers: dict[Layer, float] | None = None  # of an answer that is the whole completion, which alone can be split
    num_first_rows: int | None = None
    num_read_tokens: int | None = None

    @property
    def is_answered(self) -> bool:
        """True if the editor got an answer, even that there is nothing to suggest."""
        return self.outcome is not Outcome.NONE

    @property
    def overhead_ms(self) -> float | None:
        """Everything but the model; None if that is not known."""
        return None if self.layers is None or not self.layers[Layer.MODEL] else self.total_ms - self.layers[Layer.MODEL]


def find_key_times(
    moments: Iterable[Moment], pressed: Sequence[PressedKey], records: Sequence[RequestRecord]
) -> list[KeyTime]:
    """Returns the time of each key."""
    moments = list(moments)
    by_key = _match(moments, pressed, records)
    return [
        _build_key_time(moment.key, press, by_key.get(index))
        for index, (moment, press) in enumerate(zip(moments, pressed, strict=True))
    ]


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
    total_ms = 1e3 * (press.ended_at - press.sent_at)
    if record is None:
        return KeyTime(key, press.outcome, total_ms, needs_server=False)
    stats = record.stats or {}
    return KeyTime(
        key,
        press.outcome,
        total_ms,
        needs_server=True,
        layers=_split(press, record, total_ms),
        num_first_rows=_find_count(stats, "num_first_rows"),
        num_read_tokens=_find_count(stats, "num_read_tokens"),
    )


def _split(press: PressedKey, record: RequestRecord, total_ms: float) -> dict[Layer, float] | None:
    """None for a key without an answer, and for one that was answered before the completion was whole.

    The statistics are those of whole completions.
    """
    if press.outcome is Outcome.NONE or record.stats is None or record.chunks_at[-1] > press.ended_at:
        return None
    stats = record.stats
    server_ms, stream_ms = stats["total_ms"], 1e3 * (record.chunks_at[-1] - record.asked_at)
    layers = {
        Layer.LANGUAGE_SERVER: total_ms - stream_ms,
        Layer.WIRE: stream_ms - server_ms,
        Layer.QUEUE: max(stats["queue_ms"] - stats.get("prompt_ms", 0.0), 0.0),  # it is healed before it runs
        Layer.HEALING: stats.get("prompt_ms", 0.0),
        Layer.MODEL: stats.get("model_ms", 0.0),
        Layer.CHOICE: stats.get("choice_ms", 0.0),
    }
    inside = (Layer.QUEUE, Layer.HEALING, Layer.MODEL, Layer.CHOICE)
    return layers | {Layer.ENGINE: server_ms - sum(layers[layer] for layer in inside)}


def _find_count(stats: dict[str, float], name: str) -> int | None:
    return int(stats[name]) if name in stats else None


_MAX_FEW_TOKENS = 1


def build_rows(times: Sequence[KeyTime]) -> list[Row]:
    """A row for all keys, one for each kind, and one for the first keys."""
    groups = {"all": times}
    groups |= {str(kind): [each for each in times if each.key.kind is kind] for kind in KeyKind}
    groups["first"] = [each for each in times if each.key.is_first]
    return [_build_row(name, group) for name, group in groups.items() if group]


def find_figures(times: Sequence[KeyTime]) -> dict[str, float | bool | None]:
    """The figures of a replay."""
    served = [each for each in times if each.needs_server]
    first = [each for each in times if each.key.is_first]
    ahead = [each for each in times if not each.needs_server and each.is_answered]
    overheads = [each.overhead_ms for each in served if each.overhead_ms is not None]
    return {
        "num_keys": len(times),
        "ghost_ms_p50": find_percentile(_times_ms(served), 50),
        "ghost_ms_p99": find_percentile(_times_ms(served), 99),
        "first_pass_rows_mean": find_mean(_first_rows(served)),
        "context_reads_le_1_share": _find_few_share(times),
        "prefetched_share": _find_few_share(first),
        "first_ms_p50": find_percentile(_times_ms([each for each in first if each.needs_server]), 50),
        "first_ms_p99": find_percentile(_times_ms([each for each in first if each.needs_server]), 99),
        "typed_ahead_ms_p50": find_percentile(_times_ms(ahead), 50),
        "typed_ahead_ms_p99": find_percentile(_times_ms(ahead), 99),
        "typed_ahead_share": len(ahead) / len(times),
        "answered_share": find_mean(each.is_answered for each in times),
        "split_share": find_mean(each.layers is not None for each in served),
        "served_reads_le_1_share": find_mean(_reads_few(served)),
        "overhead_ms_p50": find_percentile(overheads, 50),
        "overhead_ms_p99": find_percentile(overheads, 99),
    }


def _find_mean_layers(times: Sequence[KeyTime]) -> dict[Layer, float]:
    """The mean of each layer over the keys whose time can be split; empty if there are none."""
    split = [each.layers for each in times if each.layers is not None]
    return {layer: sum(layers[layer] for layers in split) / len(split) for layer in Layer} if split else {}


def _build_row(name: str, times: Sequence[KeyTime]) -> Row:
    served = [each for each in times if each.needs_server]
    layers = _find_mean_layers(served)
    row: dict[str, Value] = {
        "keys": name,
        "number": len(times),
        "without server, %": 100 * (1 - len(served) / len(times)),
        "answered, %": 100 * sum(each.is_answered for each in times) / len(times),
        "ms, p50": find_percentile(_times_ms(served), 50),
        "ms, p99": find_percentile(_times_ms(served), 99),
    }
    row |= {str(layer): layers.get(layer) for layer in Layer}
    return row | {
        "rows": find_mean(_first_rows(served)),
        "read": find_mean(each.num_read_tokens for each in served if each.num_read_tokens is not None),
        "read ≤ 1, %": _percent(find_mean(_reads_few(served))),
    }


def _times_ms(times: Sequence[KeyTime]) -> list[float]:
    return [each.total_ms for each in times if each.is_answered]


def _first_rows(times: Sequence[KeyTime]) -> list[int]:
    return [each.num_first_rows for each in times if each.num_first_rows is not None]


def _reads_few(times: Sequence[KeyTime]) -> list[bool]:
    return [each.num_read_tokens <= _MAX_FEW_TOKENS for each in times if each.num_read_tokens is not None]


def _find_few_share(times: Sequence[KeyTime]) -> float | None:
    """The share of keys that read few tokens; keys that need no server read none. None if reads are not known."""
    few = _reads_few(times)
    return find_mean([*few, *(True for each in times if not each.needs_server)]) if few else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
