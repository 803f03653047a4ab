"""The Triton model `completion`, which converts between tensors and `inference.protocol.completion`.

Its engine's thread sends the chunks. No metric counts a heartbeat request; metrics are written in a thread of their
own. `inference.protocol.adapter` has what both models share.
"""

import os
from collections.abc import Callable
from typing import Any  # Triton's objects have no types

import triton_python_backend_utils as pb_utils  # MetricFamily exists only inside methods

import inference
from inference.config import EngineConfig
from inference.engine.metrics import METRICS, LateObservations, Observation, Outcome, observe
from inference.model.folder_file import read_folder_file
from inference.protocol import completion_arrays
from inference.protocol.adapter import Adapter


def _load_engine(config: EngineConfig) -> Any:
    if config.engine_url:
        from inference.remote.assembly import load_remote_engine

        return load_remote_engine(config)
    from inference.engine.assembly import load_engine  # here, because it loads the runners

    return load_engine(config)


class TritonPythonModel(Adapter):
    """The completion model."""

    def __init__(self, load_engine: Callable[[EngineConfig], Any] = _load_engine) -> None:
        read, write = completion_arrays.request_from_arrays, completion_arrays.chunk_to_arrays
        super().__init__(pb_utils, completion_arrays.REQUEST_TYPES, read, write)
        self._load_engine = load_engine  # returns an `inference.engine.sink.CompletionEngine`

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the model that the settings name. Raises ModelError."""
        pb_utils.Logger.log_info(f"completion: inference is {inference.__file__}")
        config = self.read_config(args, os.environ)
        self.engine = self._load_engine(config)
        languages, engine = read_folder_file(config.model_dir).languages, self.engine
        self.describe = lambda: completion_arrays.description_to_arrays(
            completion_arrays.Description(languages, engine.runs_as, engine.problem)
        )
        pb_utils.Logger.log_info(f"completion: the model runs as {engine.runs_as}")
        self._metrics = LateObservations(_Metrics().write, pb_utils.Logger.log_error)
        self.note_end = lambda end: self._metrics.add(observe(end))

    def finalize(self) -> None:
        """Fails the unfinished requests and stops the threads."""
        super().finalize()
        self._metrics.close()


class _Metrics:
    """The metrics of `inference.engine.metrics`, registered with Triton."""

    def __init__(self) -> None:
        self._families, self._series = [], {}
        for metric in METRICS:
            buckets = {"buckets": list(metric.buckets_ms)} if metric.buckets_ms else {}
            kind = pb_utils.MetricFamily.HISTOGRAM if buckets else pb_utils.MetricFamily.COUNTER
            self._families.append(pb_utils.MetricFamily(metric.name, metric.description, kind))
            for outcome in Outcome if metric.has_outcomes else (None,):
                labels = {"outcome": outcome.value} if outcome else {}
                self._series[metric, outcome] = self._families[-1].Metric(labels=labels, **buckets)

    def write(self, seen: Observation) -> None:
        """Writes one observation. One thread at a time: Triton 2.51 crashes if two use one series at once."""
        series = self._series[seen.metric, seen.outcome]
        (series.observe if seen.metric.buckets_ms else series.increment)(seen.value)
