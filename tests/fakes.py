"""Stand-ins for what the product talks to, one for each seam."""

import threading
import time
from typing import Protocol

from inference.config import EngineConfig
from inference.errors import InvalidRequestError, MidtokenError, OverloadedError
from inference.wire import CompletionChunk, CompletionRequest, CompletionStats, FinishReason


class ChunkSink(Protocol):
    """Where a scripted engine sends one request's chunks."""

    def send(self, chunk: CompletionChunk) -> None: ...
    def fail(self, error: MidtokenError) -> None: ...
    def is_cancelled(self) -> bool: ...


class ScriptedEngine:
    """An engine that does what the prefix says, each request on a thread of its own.

    `slow`: a chunk each 20 ms for ten seconds or until cancelled; `silent`: the same without chunks;
    `overload`, `refuse`, `raise`, `break`: the ways to fail; anything else: the prefix reversed, in two chunks.
    What it saw stands in `events.txt` of the model folder.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._log = config.model_dir / "events.txt"
        self._threads: list[threading.Thread] = []
        self._is_closed = threading.Event()

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        """Raises what the script says."""
        if request.prefix == "overload":
            raise OverloadedError("64 requests are waiting already")
        if request.prefix == "refuse":
            raise InvalidRequestError("prefix is refused by the script")
        if request.prefix == "raise":
            raise RuntimeError("a bug in the engine")
        script = self._run_slowly if request.prefix in ("slow", "silent") else self._answer
        thread = threading.Thread(target=script, args=(request, sink), daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Fails what is in flight."""
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
                self._note(f"cancelled after {number}")
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
    num_reused_tokens=7, num_hot_hits=3, num_hot_misses=1,
)  # fmt: skip
