"""The model `completion` of the model repository: `inference.protocol.completion` before an engine.

The engine's thread sends the chunks, and each request that has ended is counted in metrics.
"""

import time
from collections.abc import Callable
from typing import Any  # Triton's objects have no types

from inference.config import EngineConfig
from inference.engine.metrics import FinishedRequest, Metrics, Outcome
from inference.hosting.adapter import Adapter, Sink, say
from inference.model_folder import read_folder_file
from inference.protocol.arrays import REQUEST_TYPES, chunk_to_arrays, request_from_arrays
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Description,
    FinishReason,
    Priority,
)

_FRESH_S = 2.0  # a completion that is not older says as much as a probe


def _load_engine(config: EngineConfig) -> Any:
    if config.engine_url:
        from inference.remote.executor import load_remote_engine

        return load_remote_engine(config)
    from inference.engine.assembly import load_engine  # here, because it loads the runners

    return load_engine(config)


class TritonPythonModel(Adapter):
    """The completion model."""

    def __init__(self, load_engine: Callable[[EngineConfig], Any] = _load_engine) -> None:
        """`load_engine`: returns an `inference.engine.sink.CompletionEngine`."""
        super().__init__("completion", REQUEST_TYPES, request_from_arrays, chunk_to_arrays, load_engine)

    def load(self, config: EngineConfig) -> None:
        """See `Adapter`."""
        super().load(config)
        self._languages = read_folder_file(config.model_dir).languages
        self._metrics = Metrics(self.engine)
        self._completed_at = -_FRESH_S
        say(f"completion: the model runs as {self.engine.runs_as}, {self.engine.context_tokens} tokens of context")

    def describe(self) -> Description:
        """What the model knows, how it runs, its metrics, and what is wrong with its engine."""
        engine = self.engine
        return Description(
            self._languages,
            engine.runs_as,
            engine.problem,
            repository_format=engine.repository_format,
            context_tokens=engine.context_tokens,
            metrics=self._metrics.write(),
        )

    def submit(self, request: CompletionRequest, sink: Sink) -> None:
        """See `Adapter`. A probe is answered at once if a completion has just succeeded."""
        if _is_probe(request) and time.monotonic() - self._completed_at < _FRESH_S:
            chunk = CompletionChunk("", finish_reason=FinishReason.LENGTH, stats=CompletionStats())
            sink.end(chunk_to_arrays(chunk))
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
