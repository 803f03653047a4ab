"""A request from its arrival at the engine to its end. Until its turn comes, no prompt is built for it."""

from dataclasses import dataclass

from inference.engine.job import Job
from inference.engine.sink import ChunkSink
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason, Priority


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that the engine has taken, and its job once there is one."""

    request: CompletionRequest
    sink: ChunkSink
    submitted_at: float  # seconds of the engine's clock
    job: Job | None = None
    is_begun: bool = False  # whether the job has a sequence
    work: float = 0.0
    num_remembered: int = 0  # of its context's tokens, before it is begun
    will_be_late: bool = False

    @property
    def tenant(self) -> str:
        """Whose request it is."""
        return self.request.tenant

    @property
    def document(self) -> str:
        """What it completes; empty if that is not said."""
        return self.request.document

    @property
    def priority(self) -> Priority:
        """Who waits for it."""
        return self.request.priority

    @property
    def num_sequences(self) -> int:
        """The number of its candidates, which step together."""
        return self.request.num_candidates

    @property
    def num_tokens(self) -> int:
        """The token capacity of its caches, all sequences together."""
        assert self.job is not None, "only a prompt tells its size"
        return self.num_sequences * self.job.max_cached_tokens

    @property
    def num_unread(self) -> int:
        """The context tokens to read before its first token; 0 before there is a prompt."""
        if self.job is None or self.job.candidates[0].token_ids:
            return 0
        num_known = 0 if self.is_begun else self.num_remembered
        return len(self.job.candidates[0].tree.chain_ids) - num_known

    def has_until(self, now: float) -> bool:
        """True if its deadline does not pass before that time."""
        deadline_ms = self.request.deadline_ms
        return deadline_ms is None or 1e3 * (now - self.submitted_at) < deadline_ms

    def end_unbegun(self, reason: FinishReason, now: float) -> None:
        """Sends the only chunk of a request that ends before its turn."""
        waited_ms = 1e3 * (now - self.submitted_at)
        stats = CompletionStats(queue_ms=waited_ms, first_chunk_ms=waited_ms, total_ms=waited_ms)
        self.sink.send(CompletionChunk("", finish_reason=reason, stats=stats))
