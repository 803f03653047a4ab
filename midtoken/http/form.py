"""What has arrived of an answer, and what the forms have in common in which protocols write it."""

import dataclasses
import json
import time
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from inference.likely_text import LikelyText
from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason
from midtoken.http.parsed_request import ParsedRequest

DONE = "[DONE]"

# Of fields of a `CompletionRequest`, for a client. Each form has its own for others.
NAMES: Mapping[str, str] = {"num_candidates": "n", "tenant": "user", "document": "the session", "prefix": "prompt"}


@dataclass(frozen=True, slots=True)
class Framing:
    """How a stream has its events."""

    content_type: str
    before: str
    after: str

    def write(self, event: object) -> bytes:
        """Returns the bytes of an event."""
        return f"{self.before}{event if event == DONE else to_json(event)}{self.after}".encode()


EVENTS, LINES = Framing("text/event-stream", "data: ", "\n\n"), Framing("application/x-ndjson", "", "\n")


@dataclass(slots=True)
class Texts:
    """What has arrived: each text, why it ended, and what each prompt has cost. The texts of a prompt are adjacent."""

    texts: defaultdict[int, LikelyText] = field(default_factory=lambda: defaultdict(LikelyText))
    reasons: dict[int, FinishReason] = field(default_factory=dict)
    stats: list[CompletionStats] = field(default_factory=list)  # none of a prompt whose texts were ended here

    def add(self, chunk: CompletionChunk) -> None:
        """Adds a chunk."""
        self.texts[chunk.candidate].add(chunk)
        if chunk.finish_reason is not None:
            self.reasons[chunk.candidate] = chunk.finish_reason
        if chunk.stats is not None:
            self.stats.append(chunk.stats)

    def sum_stats(self) -> CompletionStats:
        """Returns the cost of all prompts."""
        names = [each.name for each in dataclasses.fields(CompletionStats)]
        return CompletionStats(**{name: sum(getattr(each, name) for each in self.stats) for name in names})

    def name_end(self, candidate: int) -> str:
        """Returns `length` for a text that was cut off, otherwise `stop`."""
        return "length" if self.reasons.get(candidate) is FinishReason.LENGTH else "stop"

    def write_usage(self) -> dict[str, int]:
        """Returns the numbers of tokens as OpenAI names them."""
        stats = self.sum_stats()
        total = stats.num_context_tokens + stats.num_tokens
        return {
            "prompt_tokens": stats.num_context_tokens,
            "completion_tokens": stats.num_tokens,
            "total_tokens": total,
        }


class Form(ABC):
    """Writes one answer of a protocol."""

    framing: Framing = EVENTS
    hides_refusals: bool = False  # whether clients show a message for each status but 200
    names: Mapping[str, str] = NAMES  # of fields of a `CompletionRequest`, for the client

    def __init__(self, parsed: ParsedRequest, model: str) -> None:
        """`model`: its name."""
        self._parsed, self._model = parsed, model
        self._head = {"id": f"cmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def explain(self, answer: object) -> object:
        """Returns the answer, or the event of a stream; with the reason, if the text is empty for one."""
        if isinstance(answer, list):
            return [self.explain(each) for each in answer]
        reason = self._parsed.reason
        return {**answer, "reason": reason} if reason and isinstance(answer, dict) else answer

    @abstractmethod
    def write_whole(self, texts: Texts) -> object:
        """Returns the answer that is not streamed."""

    @abstractmethod
    def write_event(self, chunk: CompletionChunk, texts: Texts) -> object:
        """Returns the event of a stream for a chunk, which `texts` has too."""

    @abstractmethod
    def write_end(self, texts: Texts) -> Iterator[object]:
        """Yields the last events of a stream."""


def to_json(value: object) -> str:
    """Returns JSON without blanks: llama.vim shows only an answer that contains `"content":"`."""
    return json.dumps(value, separators=(",", ":"))
