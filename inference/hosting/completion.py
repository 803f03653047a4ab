"""The model `completion` of the model repository: `inference.protocol.completion` before an engine.

The engine's thread sends the chunks, and each request that has ended is counted in metrics.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any  # Triton's objects have no types

import numpy as np

from inference.config import EngineConfig
from inference.engine.metrics import FinishedRequest, Metrics, Outcome
from inference.hosting.adapter import Adapter, Sink
from inference.model_folder import read_folder_file
from inference.protocol import completion_arrays
from inference.protocol.arrays import METRICS, METRICS_ANSWER, METRICS_TYPES, Array, asks_for, to_array
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason, Priority

_FRESH_S = 2.0  # a completion that is not older says as much as a probe


def _load_engine(config: EngineConfig) -> Any:
    if config.engine_url:
        from inference.remote.assembly import load_remote_engine

        return load_remote_engine(config)
    from inference.engine.assembly import load_engine  # here, because it loads the runners

    return load_engine(config)


class TritonPythonModel(Adapter):
    """The completion model."""

    def __init__(self, load_engine: Callable[[EngineConfig], Any] = _load_engine) -> None:
        """`load_engine`: returns an `inference.engine.sink.CompletionEngine`."""
        read, write = completion_arrays.request_from_arrays, completion_arrays.chunk_to_arrays
        types = completion_arrays.REQUEST_TYPES | METRICS_TYPES
        super().__init__("completion", types, read, write, load_engine)

    def load(self, config: EngineConfig) -> None:
        """See `Adapter`."""
        super().load(config)
        self._languages = read_folder_file(config.model_dir).languages
        self._metrics = Metrics(self.engine)
        self._completed_at = -_FRESH_S
        self.log_info(
            f"completion: the model runs as {self.engine.runs_as}, {self.engine.context_tokens} tokens of context"
        )

    def describe(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """What the model knows, how it runs, and what is wrong with its engine; with `metrics`, also those."""
        if asks_for(METRICS, arrays):
            return {METRICS_ANSWER: to_array((self._metrics.write(),), np.object_)}
        engine = self.engine
        description = completion_arrays.Description(
            self._languages,
            engine.runs_as,
            engine.problem,
            repository_format=engine.repository_format,
            context_tokens=engine.context_tokens,
        )
        return completion_arrays.description_to_arrays(description)

    def submit(self, request: CompletionRequest, sink: Sink) -> None:
        """See `Adapter`. A probe is answered at once if a completion has just succeeded."""
        if _is_probe(request) and time.monotonic() - self._completed_at < _FRESH_S:
            chunk = CompletionChunk("", finish_reason=FinishReason.LENGTH, stats=CompletionStats())
            sink.end(completion_arrays.chunk_to_arrays(chunk))
        else:
            super().submit(request, sink)

    def note_end(self, request: CompletionRequest | None, end: Any, duration_s: float) -> None:
        """Counts a request."""
        finished = FinishedRequest.of(end, duration_s)
        if finished.outcome is Outcome.COMPLETED:
            self._completed_at = time.monotonic()
        if request is None or not _is_probe(request):
            self._metrics.add(finished)


def _is_probe(request: CompletionRequest) -> bool:
    """A longer one is counted: anybody can say that a request is a probe."""
    return request.priority is Priority.PROBE and request.max_tokens == 1
