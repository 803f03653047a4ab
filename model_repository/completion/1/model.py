"""The model `completion` of the model repository: `inference.protocol.completion` before an engine.

The engine's thread sends the chunks. With Triton, metrics are written in a thread of their own; no metric counts a
heartbeat request.
"""

from collections.abc import Callable
from typing import Any  # Triton's objects have no types

from inference.config import EngineConfig
from inference.engine.metrics import METRICS, BufferedMetrics, Observation, Outcome, observe
from inference.model.folder_file import read_folder_file
from inference.protocol import completion_arrays
from inference.protocol.adapter import Adapter
from inference.protocol.arrays import Array


def _load_engine(config: EngineConfig) -> Any:
    if config.engine_url:
        from inference.remote.assembly import load_remote_engine

        return load_remote_engine(config)
    from inference.engine.assembly import load_engine  # here, because it loads the runners

    return load_engine(config)


class TritonPythonModel(Adapter):
    """The completion model."""

    _metrics: BufferedMetrics | None = None

    def __init__(self, load_engine: Callable[[EngineConfig], Any] = _load_engine) -> None:
        """`load_engine`: returns an `inference.engine.sink.CompletionEngine`."""
        read, write = completion_arrays.request_from_arrays, completion_arrays.chunk_to_arrays
        super().__init__("completion", completion_arrays.REQUEST_TYPES, read, write, load_engine)

    def load(self, config: EngineConfig) -> None:
        """See `Adapter`."""
        super().load(config)
        self._languages = read_folder_file(config.model_dir).languages
        self.log_info(
            f"completion: the model runs as {self.engine.runs_as}, {self.engine.context_tokens} tokens of context"
        )

    def describe(self) -> dict[str, Array]:
        """What the model knows, how it runs, and what is wrong with its engine."""
        engine = self.engine
        description = completion_arrays.Description(
            self._languages,
            engine.runs_as,
            engine.problem,
            repository_format=engine.repository_format,
            context_tokens=engine.context_tokens,
        )
        return completion_arrays.description_to_arrays(description)

    def note_end(self, end: Any) -> None:
        """Counts a request."""
        if self._metrics is not None:
            self._metrics.add(observe(end))

    def initialize(self, _args: dict[str, str]) -> None:
        """See `Adapter`; and registers the metrics."""
        super().initialize(_args)
        self._metrics = BufferedMetrics(_Metrics(self.triton.MetricFamily).write, self.log_error)

    def close(self) -> None:
        """See `Adapter`."""
        super().close()
        if self._metrics is not None:
            self._metrics.close()


class _Metrics:
    """The metrics of `inference.engine.metrics`, registered with Triton."""

    def __init__(self, register: Any) -> None:
        """`register`: Triton's MetricFamily."""
        self._families, self._series = [], {}
        for metric in METRICS:
            buckets = {"buckets": list(metric.buckets_ms)} if metric.buckets_ms else {}
            kind = register.HISTOGRAM if buckets else register.COUNTER
            self._families.append(register(metric.name, metric.description, kind))
            for outcome in Outcome if metric.has_outcomes else (None,):
                labels = {"outcome": outcome.value} if outcome else {}
                self._series[metric, outcome] = self._families[-1].Metric(labels=labels, **buckets)

    def write(self, seen: Observation) -> None:
        """Writes one observation. One thread at a time: Triton 2.51 crashes if two use one series at once."""
        series = self._series[seen.metric, seen.outcome]
        (series.observe if seen.metric.buckets_ms else series.increment)(seen.value)
