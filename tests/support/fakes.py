"""Fakes of what the product talks to, one for each interface."""

import threading
import time

from inference.config import EngineConfig
from inference.engine.engine import EngineLoad
from inference.engine.job import ChunkSink
from inference.errors import InvalidRequestError, MidtokenError, OverloadedError
from inference.heartbeat import Heartbeat
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason


class ScriptedEngine:
    """An engine that does what the prefix says. Each request runs on its own thread.

    `slow`: a chunk every 20 ms, for ten seconds or until cancelled; `silent`: the same without chunks;
    `overload`, `refuse`, `raise`, `break`: the ways to fail; anything else: the prefix reversed, in two chunks. After
    `hang`, its heartbeat stops.
    It writes lines to `events.txt` in the model folder: one for each slow request that is cancelled, with the suffix as
    its name, and one when the engine is closed.
    """

    runs_as = problem = repository_format = ""
    context_tokens = 1024

    def __init__(self, config: EngineConfig) -> None:
        self._log = config.model_dir / "events.txt"
        self._threads: list[threading.Thread] = []
        self._is_closed = threading.Event()
        self.heartbeat = Heartbeat(time.monotonic)
        self.heartbeat.mark_idle()

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        """Starts the request, or raises the error that its prefix names."""
        if request.prefix == "overload":
            raise OverloadedError("64 requests are waiting already")
        if request.prefix == "refuse":
            raise InvalidRequestError("prefix is refused by the script")
        if request.prefix == "raise":
            raise RuntimeError("a bug in the engine")
        if request.prefix == "hang":
            self.heartbeat.beat()
        script = self._run_slowly if request.prefix in ("slow", "silent") else self._answer
        thread = threading.Thread(target=script, args=(request, sink), daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def load(self) -> EngineLoad:
        """Nothing to do."""
        return EngineLoad(0, 0, {})

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
    queue_ms=1.5, first_chunk_ms=2.5, first_token_ms=2.5, first_line_ms=3.5, total_ms=3.5, num_tokens=2,
    num_forwards=2, num_context_tokens=10,
)  # fmt: skip
