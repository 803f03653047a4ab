"""Where the time of a key went: what the editor saw, matched with what the language server recorded."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.corpora.typing import Key, Moment
from benchmarks.measures.typing.recorded_lsp import RequestRecord
from benchmarks.measures.typing.replay_editor import Outcome, PressedKey


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
    num_file_tokens: int  # nominal
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
    moments: Iterable[Moment],
    num_file_tokens: Sequence[int],
    pressed: Sequence[PressedKey],
    records: Sequence[RequestRecord],
) -> list[KeyTime]:
    """Returns the time of each key. `num_file_tokens` has the size of each document."""
    moments = list(moments)
    by_key = _match(moments, pressed, records)
    return [
        _build_key_time(moment.key, num_file_tokens[moment.key.document], press, by_key.get(index))
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
    for record in sorted(records, key=lambda each: each.asked_at):
        while num_before < len(pressed) and pressed[num_before].sent_at <= record.asked_at:
            num_before += 1
        for index in range(num_before - 1, -1, -1):
            if record.is_about(moments[index].prefix, moments[index].suffix):
                found[index] = record
                break
    return found


def _build_key_time(key: Key, num_file_tokens: int, press: PressedKey, record: RequestRecord | None) -> KeyTime:
    total_ms = 1e3 * (press.ended_at - press.sent_at)
    if record is None:
        return KeyTime(key, num_file_tokens, press.outcome, total_ms, needs_server=False)
    stats = record.stats or {}
    return KeyTime(
        key,
        num_file_tokens,
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
