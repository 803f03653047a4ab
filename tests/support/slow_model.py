"""The real engine, whose speed and failures are scripted. `tests.support.servers.make_slow` puts it behind a server.

The script is JSON in the model's folder, read again whenever it has changed. Its fields:
- `pass_s`: how long each forward pass waits, without the interpreter's lock
- `sequence_s`: how much longer it waits for each sequence in it, so that many take longer than few
- `fault`: what passes do: `raise`, `nan`, or `hang` until the script changes
- `after`: so many passes after the change are right
"""

import dataclasses
import json
import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any  # the parts of the engine are passed on as they are

from inference.config import EngineConfig
from inference.engine.local_executor import build_engine
from inference.model.loader import load_model
from inference.model.sampler import NumpyRow
from inference.remote.executor import load_remote_engine

SCRIPT = "script.json"
_HANG_S = 0.01  # between two looks at the script


def load_slow_engine(config: EngineConfig) -> "CountedEngine":
    """The engine of the model, or of a server that has it, behind the script."""
    script = Script(config.model_dir / SCRIPT)
    if config.engine_url:
        return CountedEngine(load_remote_engine(config))
    loaded = load_model(config)
    slow: Any = SlowModel(loaded.model, script)
    return CountedEngine(build_engine(config, dataclasses.replace(loaded, model=slow)))


class Script:
    """The fields of the script as they are now."""

    def __init__(self, path: Path) -> None:
        self._path, self._changed_at = path, -1
        self._fields: dict[str, Any] = {}
        self.num_passes = 0  # since it was changed

    def read(self, name: str) -> Any:
        """A field; None if the script has none."""
        changed_at = self._path.stat().st_mtime_ns
        if changed_at != self._changed_at:
            self._fields, self._changed_at, self.num_passes = json.loads(self._path.read_text()), changed_at, 0
        return self._fields.get(name)


class SlowModel:
    """A LanguageModel that passes everything on, after what the script says."""

    def __init__(self, model: Any, script: Script) -> None:
        self._model, self._script = model, script

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, parts: Sequence[Any]) -> list[list[Any]]:
        time.sleep((self._script.read("pass_s") or 0.0) + (self._script.read("sequence_s") or 0.0) * len(parts))
        fault = self._script.read("fault")
        self._script.num_passes += 1
        is_due = self._script.num_passes > (self._script.read("after") or 0)
        if fault == "raise" and is_due:
            raise RuntimeError("a bug in the model")
        while fault == "hang" and is_due and self._script.read("fault") == "hang":
            time.sleep(_HANG_S)
        rows: list[list[Any]] = self._model.forward(parts)
        return [[_spoil(row) for row in each] for each in rows] if fault == "nan" and is_due else rows


def _spoil(row: NumpyRow) -> NumpyRow:
    return NumpyRow(row.logits * math.nan, row.tokens)


class CountedEngine:
    """An engine that counts the requests that it takes, and those that have ended, and says so in `runs_as`."""

    def __init__(self, engine: Any) -> None:
        self._engine, self._lock = engine, threading.Lock()
        self._num_created = self._num_released = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def runs_as(self) -> str:
        """Its counts, for `tests.support.servers.read_counts`."""
        executor = self._engine._executor
        num_held = len(getattr(executor, "_running", ()))
        return json.dumps({"created": self._num_created, "released": self._num_released, "held": num_held})

    def submit(self, request: Any, sink: Any) -> None:
        with self._lock:
            self._num_created += 1
        try:
            self._engine.submit(request, _CountedSink(sink, self))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Counts an end."""
        with self._lock:
            self._num_released += 1


class _CountedSink:
    def __init__(self, sink: Any, engine: CountedEngine) -> None:
        self._sink, self._engine = sink, engine
        self.is_cancelled = sink.is_cancelled

    def send(self, chunk: Any) -> None:
        if chunk.is_last:
            self._engine.release()
        self._sink.send(chunk)

    def fail(self, error: Any) -> None:
        self._engine.release()
        self._sink.fail(error)
