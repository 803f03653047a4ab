"""The Triton model `completion`, which converts between tensors and `inference.protocol.completion`.

It is decoupled: `execute` passes each request to the engine and returns; the engine's thread sends the chunks. Every
request ends in exactly one response with the FINAL flag, the last chunk or an error. Without it, the stream would never
close. A heartbeat request is answered at once: it does not wait in the engine, and no metric counts it. Whether a
request was cancelled is asked, and metrics are written, in threads of their own.
"""

import json
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any  # Triton's objects have no types

import triton_python_backend_utils as pb_utils  # TritonError, Tensor and MetricFamily exist only inside methods

import inference
from inference.config import EngineConfig, config_from_strings, strings_from_environment
from inference.engine.cancel_watch import CancelWatch
from inference.engine.metrics import METRICS, LateObservations, Observation, Outcome, observe_end, observe_error
from inference.errors import MidtokenError, to_public_error
from inference.model.folder_file import read_folder_file
from inference.protocol import completion_arrays
from inference.protocol.arrays import (
    HEARTBEAT,
    HEARTBEAT_TYPES,
    Array,
    asks_for_heartbeat,
    error_to_response,
    heartbeat_to_arrays,
    read_inputs,
)
from inference.protocol.completion import CompletionChunk

_INPUTS = completion_arrays.REQUEST_TYPES | HEARTBEAT_TYPES


def _load_engine(config: EngineConfig) -> Any:
    if config.engine_url:
        from inference.remote.engine import load_remote_engine

        return load_remote_engine(config)
    from inference.engine.assembly import load_engine  # here, because it loads the runners

    return load_engine(config)


class TritonPythonModel:
    """The completion model. Its settings are config.pbtxt's parameters, overridden by MIDTOKEN_* variables."""

    def __init__(self, load_engine: Callable[[EngineConfig], Any] = _load_engine) -> None:
        self._load_engine = load_engine  # returns an `inference.engine.sink.CompletionEngine`

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the model that the settings name. Raises ModelError."""
        pb_utils.Logger.log_info(f"completion: inference is {inference.__file__}")
        parameters = json.loads(args["model_config"])["parameters"]
        strings = {name: value["string_value"] for name, value in parameters.items()}
        config = config_from_strings(strings | strings_from_environment(os.environ))
        self._engine = self._load_engine(config)
        languages, runs_as = read_folder_file(config.model_dir).languages, self._engine.runs_as
        self._description = completion_arrays.description_to_arrays(languages, runs_as)
        pb_utils.Logger.log_info(f"completion: the model runs as {runs_as or config.dtype}")
        self._metrics = LateObservations(_Metrics().write, pb_utils.Logger.log_error)
        self._cancels = CancelWatch()

    def execute(self, requests: Iterable[Any]) -> None:
        """Answers heartbeat requests at once, and passes all others to the engine."""
        for request in requests:
            sink = _Sink(request.get_response_sender(), self._metrics)
            try:
                self._take(request, sink)
            except Exception as error:  # an exception raised here would leave the stream open
                sink.fail(to_public_error(error, pb_utils.Logger.log_error))

    def _take(self, request: Any, sink: "_Sink") -> None:
        arrays = read_inputs(request, pb_utils.get_input_tensor_by_name, _INPUTS)
        if asks_for_heartbeat(arrays):
            sink.send_heartbeat(heartbeat_to_arrays(self._engine.measure_heartbeat_ms()) | self._description)
            return
        arrays.pop(HEARTBEAT, None)
        self._engine.submit(completion_arrays.request_from_arrays(arrays), sink)
        self._cancels.add(sink.ask)

    def finalize(self) -> None:
        """Fails the unfinished requests and stops the threads."""
        self._engine.close()
        self._cancels.close()
        self._metrics.close()


class _Sink:
    """Sends one request's chunks to Triton. Calls after the end are ignored."""

    def __init__(self, sender: Any, metrics: LateObservations) -> None:
        self._sender, self._metrics = sender, metrics
        self._is_ended, self._is_cancelled = False, False
        self._lock = threading.Lock()  # after the end, Triton must not be asked about a request

    def send(self, chunk: CompletionChunk) -> None:
        response = _build_response(completion_arrays.chunk_to_arrays(chunk))
        if chunk.is_last:
            self._end(response, observe_end(chunk))
        elif not self._is_ended:
            self._sender.send(response)

    def send_heartbeat(self, arrays: dict[str, Array]) -> None:
        self._end(_build_response(arrays), ())

    def fail(self, error: MidtokenError) -> None:
        text, code = error_to_response(error)
        triton_error = pb_utils.TritonError(text, getattr(pb_utils.TritonError, code))
        self._end(pb_utils.InferenceResponse(error=triton_error), observe_error(error))

    def is_cancelled(self) -> bool:
        return self._is_cancelled

    def ask(self) -> bool:
        """Asks Triton whether the request was cancelled. Returns False if that is known, or the request has ended."""
        with self._lock:
            self._is_cancelled = self._is_cancelled or (not self._is_ended and bool(self._sender.is_cancelled()))
            return not self._is_cancelled and not self._is_ended

    def _end(self, response: Any, observations: Iterable[Observation]) -> None:
        with self._lock:
            was_ended, self._is_ended = self._is_ended, True
        if not was_ended:
            self._sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            self._metrics.add(observations)


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


def _build_response(arrays: dict[str, Array]) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in arrays.items()])
