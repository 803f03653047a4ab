"""Fakes of what the product talks to, one for each interface."""

import asyncio
import threading
import time
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Protocol

from inference.config import EngineConfig
from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError
from inference.protocol.arrays import Array
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason


class ChunkSink(Protocol):
    """The receiver of one request's chunks from a scripted engine."""

    def send(self, chunk: CompletionChunk) -> None: ...
    def fail(self, error: MidtokenError) -> None: ...
    def is_cancelled(self) -> bool: ...


class ScriptedEngine:
    """An engine that does what the prefix says. Each request runs on its own thread.

    `slow`: a chunk every 20 ms, for ten seconds or until cancelled; `silent`: the same without chunks;
    `overload`, `refuse`, `raise`, `break`: the ways to fail; anything else: the prefix reversed, in two chunks. After
    `hang`, its heartbeat stops.
    It writes lines to `events.txt` in the model folder: one for each slow request that is cancelled, with the suffix as
    its name, and one when the engine is closed.
    """

    runs_as = problem = ""

    def __init__(self, config: EngineConfig) -> None:
        self._log = config.model_dir / "events.txt"
        self._threads: list[threading.Thread] = []
        self._is_closed = threading.Event()
        self._hangs_since: float | None = None

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        """Starts the request, or raises the error that its prefix names."""
        if request.prefix == "overload":
            raise OverloadedError("64 requests are waiting already")
        if request.prefix == "refuse":
            raise InvalidRequestError("prefix is refused by the script")
        if request.prefix == "raise":
            raise RuntimeError("a bug in the engine")
        if request.prefix == "hang":
            self._hangs_since = time.monotonic()
        script = self._run_slowly if request.prefix in ("slow", "silent") else self._answer
        thread = threading.Thread(target=script, args=(request, sink), daemon=True)
        self._threads.append(thread)
        thread.start()

    def measure_heartbeat_ms(self) -> float:
        """For how long it hangs."""
        return 0.0 if self._hangs_since is None else 1e3 * (time.monotonic() - self._hangs_since)

    def close(self) -> None:
        """Fails the running requests."""
        self._is_closed.set()
        for thread in self._threads:
            thread.join()
        self._note("closed")

    def _answer(self, request: CompletionRequest, sink: ChunkSink) -> None:
        if request.prefix == "break":
            sink.send(CompletionChunk("half "))
            sink.fail(MidtokenError("the engine broke off"))
            return
        text = request.prefix[::-1][: request.max_tokens]
        sink.send(CompletionChunk(text[:1]))
        sink.send(CompletionChunk(text[1:], finish_reason=FinishReason.LENGTH, stats=_STATS))

    def _run_slowly(self, request: CompletionRequest, sink: ChunkSink) -> None:
        for number in range(500):
            if self._is_closed.is_set():
                sink.fail(MidtokenError("the server is stopping"))
                return
            if sink.is_cancelled():
                self._note(f"cancelled {request.suffix}")
                sink.send(CompletionChunk("", finish_reason=FinishReason.CANCELLED, stats=_STATS))
                return
            if request.prefix == "slow":
                sink.send(CompletionChunk(f"{number} "))
            time.sleep(0.02)
        sink.send(CompletionChunk("", finish_reason=FinishReason.END, stats=_STATS))

    def _note(self, line: str) -> None:
        with self._log.open("a") as log:
            log.write(line + "\n")


_STATS = CompletionStats(
    queue_ms=1.5, first_chunk_ms=2.5, total_ms=3.5, num_tokens=2, num_forwards=2, num_context_tokens=10,
)  # fmt: skip


class FakeTriton(ModuleType):
    """A fake of `triton_python_backend_utils`, with the part that our models use."""

    TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1

    def __init__(self) -> None:
        super().__init__("triton_python_backend_utils")
        self.log = ""
        self.metrics: dict[
            tuple[str, str | None], list[float]
        ] = {}  # (name, outcome) -> the values that were added or observed
        self.Logger = SimpleNamespace(log_info=self._write, log_error=self._write)
        self.MetricFamily = _MetricFamilies(self.metrics)
        self.TritonError = _TritonError
        self.Tensor = lambda name, array: (name, array)

    def InferenceResponse(  # noqa: N802 - Triton's name
        self, output_tensors: list[tuple[str, Array]] | None = None, error: "_TritonError | None" = None
    ) -> SimpleNamespace:
        """A response. `send` sets its flags."""
        described = error and (error.message, error.code)
        return SimpleNamespace(arrays=dict(output_tensors or []), error=described, flags=0)

    def get_input_tensor_by_name(self, request: "FakeRequest", name: str) -> SimpleNamespace | None:
        """Returns the input, or None if the request does not have it."""
        return SimpleNamespace(as_numpy=lambda: request.arrays[name]) if name in request.arrays else None

    def _write(self, line: str) -> None:
        self.log += line + "\n"


class FakeRequest:
    """A request as Triton passes it to a model."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        self.sender = FakeSender()
        self.raw_parameters = b"{}"

    def get_response_sender(self) -> "FakeSender":
        """Returns the request's one sender."""
        return self.sender

    def parameters(self) -> str:
        """Returns the parameters as JSON. Raises UnicodeDecodeError for bytes that are not UTF-8, as Triton does."""
        return self.raw_parameters.decode()


class FakeSender:
    """Records what is sent."""

    def __init__(self) -> None:
        self.responses: list[SimpleNamespace] = []
        self.cancelled = False

    def send(self, response: SimpleNamespace, flags: int = 0) -> None:
        """Records a response. Unlike Triton, it also accepts responses after FINAL."""
        response.flags = flags
        self.responses.append(response)

    def is_cancelled(self) -> bool:
        """What the test says."""
        return self.cancelled


class _TritonError:
    INVALID_ARG, UNAVAILABLE, INTERNAL = "INVALID_ARG", "UNAVAILABLE", "INTERNAL"

    def __init__(self, message: str, code: str = INTERNAL) -> None:
        self.message = message
        self.code = code


class _MetricFamilies:
    COUNTER, HISTOGRAM = "counter", "histogram"

    def __init__(self, metrics: dict[tuple[str, str | None], list[float]]) -> None:
        self.has_overlapped = False  # True once two threads used a metric at the same time, which crashes Triton 2.51
        self._metrics = metrics
        self._busy = threading.Lock()

    def __call__(self, name: str, description: str, kind: str) -> SimpleNamespace:
        assert description

        def make_metric(labels: dict[str, str], buckets: list[float] | None = None) -> SimpleNamespace:
            assert bool(buckets) == (kind == self.HISTOGRAM)
            seen = self._metrics.setdefault((name, labels.get("outcome")), [])

            def add(value: float) -> None:
                self.has_overlapped |= self._busy.locked()
                with self._busy:
                    time.sleep(0.001)  # Triton also lets other threads run here
                    seen.append(value)

            return SimpleNamespace(**{"observe" if buckets else "increment": add})

        return SimpleNamespace(Metric=make_metric)


class FakeServer:
    """A server that answers `num_probes` probes and then none. None means all."""

    def __init__(self, num_probes: int | None = None) -> None:
        self.probed, self.ended = asyncio.Event(), asyncio.Event()
        self.stops: list[bool] = []  # `may_drain` of each stop
        self._num_left = num_probes

    async def probe(self) -> None:
        """Raises ServerError after `num_probes` calls."""
        if self._num_left == 0:
            raise ServerError("no completion")
        if self._num_left is not None:
            self._num_left -= 1
        self.probed.set()

    async def wait_until_ended(self) -> None:
        """Returns when the test sets `ended`."""
        await self.ended.wait()

    async def stop(self, may_drain: bool = True) -> None:
        """Records the stop."""
        self.stops.append(may_drain)
