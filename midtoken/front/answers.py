"""The answers: the texts of a completion as OpenAI's `/v1/completions` and llama-server's `/infill` write them."""

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any  # JSON has no types

from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason
from midtoken.front.asked import Asked

DONE = "[DONE]"


@dataclass(slots=True)
class Texts:
    """What has arrived of a completion: the text of each candidate, why it ended, and the statistics."""

    texts: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, FinishReason] = field(default_factory=dict)
    stats: CompletionStats | None = None  # None: it was ended here

    def add(self, chunk: CompletionChunk) -> None:
        """Adds a chunk."""
        self.texts[chunk.candidate] = self.texts.get(chunk.candidate, "") + chunk.text
        if chunk.finish_reason is not None:
            self.reasons[chunk.candidate] = chunk.finish_reason
        self.stats = chunk.stats


class CompletionForm:
    """Writes one answer of `/v1/completions`."""

    def __init__(self, asked: Asked, model: str) -> None:
        """`model`: its name."""
        self._wants_usage = asked.wants_usage
        self._head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
        self._head["model"] = model

    def write_whole(self, texts: Texts) -> object:
        """Returns the answer that is not streamed."""
        choices = [_write_choice(each, text, texts.reasons.get(each)) for each, text in sorted(texts.texts.items())]
        return {**self._head, "choices": choices, "usage": _write_usage(texts.stats)}

    def write_event(self, chunk: CompletionChunk) -> object:
        """Returns the event of a stream for a chunk."""
        return {**self._head, "choices": [_write_choice(chunk.candidate, chunk.text, chunk.finish_reason)]}

    def write_end(self, texts: Texts) -> Iterator[object]:
        """Yields the last events of a stream."""
        if self._wants_usage:
            yield {**self._head, "choices": [], "usage": _write_usage(texts.stats)}
        yield DONE


class InfillForm:
    """Writes one answer of `/infill`."""

    def __init__(self, asked: Asked, model: str) -> None:
        """`model`: its name."""
        self._asked, self._model = asked, model

    def write_whole(self, texts: Texts) -> object:
        """Returns the answer that is not streamed."""
        results = [self._write_result(each, texts.texts[each], texts) for each in sorted(texts.texts)]
        return results if self._asked.completion.num_candidates > 1 else results[0]

    def write_event(self, chunk: CompletionChunk) -> object:
        """Returns the event of a stream for a chunk."""
        return {"index": chunk.candidate, "content": chunk.text, "tokens": [], "stop": False}

    def write_end(self, texts: Texts) -> Iterator[object]:
        """Yields the last events of a stream."""
        return (self._write_result(each, "", texts) for each in sorted(texts.texts))

    def _write_result(self, candidate: int, content: str, texts: Texts) -> dict[str, Any]:
        request, reason = self._asked.completion, texts.reasons.get(candidate)
        names = {FinishReason.END: "eos", FinishReason.STOP: "word"}
        result: dict[str, Any] = {
            "index": candidate,
            "content": content,
            "tokens": [],
            "stop": True,
            "model": self._model,
            "stop_type": "limit" if reason is None else names.get(reason, "limit"),
            "has_new_line": "\n" in texts.texts[candidate],
            "truncated": False,
            "generation_settings": {"n_predict": request.max_tokens, "temperature": request.temperature},
        }
        if texts.stats is not None:
            result |= _write_costs(texts.stats)
        if not self._asked.fields:
            return result
        result |= {f"timings/{name}": value for name, value in result.get("timings", {}).items()}
        return {name: value for name, value in result.items() if name in self._asked.fields}


def to_json(value: object) -> str:
    """Returns JSON without blanks: llama.vim shows only an answer that contains `"content":"`."""
    return json.dumps(value, separators=(",", ":"))


def _write_choice(candidate: int, text: str, reason: FinishReason | None) -> dict[str, Any]:
    ended = None if reason is None else "length" if reason is FinishReason.LENGTH else "stop"
    return {"index": candidate, "text": text, "logprobs": None, "finish_reason": ended}


def _write_usage(stats: CompletionStats | None) -> dict[str, Any]:
    stats = stats or CompletionStats()
    return {
        "prompt_tokens": stats.num_context_tokens,
        "completion_tokens": stats.num_tokens,
        "total_tokens": stats.num_context_tokens + stats.num_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.num_context_tokens - stats.num_read_tokens},
    }


def _write_costs(stats: CompletionStats) -> dict[str, Any]:
    """The times are those until the first text and until the end: often a text comes at once."""
    prompt = _write_speed("prompt", stats.num_read_tokens, stats.first_chunk_ms - stats.queue_ms)
    predicted = _write_speed("predicted", stats.num_tokens, stats.total_ms - stats.queue_ms)
    return {
        "tokens_evaluated": stats.num_context_tokens,
        "tokens_predicted": stats.num_tokens,
        "tokens_cached": stats.num_context_tokens + stats.num_tokens,
        "timings": {"cache_n": stats.num_context_tokens - stats.num_read_tokens, **prompt, **predicted},
    }


def _write_speed(name: str, num_tokens: int, took_ms: float) -> dict[str, float]:
    return {
        f"{name}_n": num_tokens,
        f"{name}_ms": took_ms,
        f"{name}_per_token_ms": took_ms / max(num_tokens, 1),
        f"{name}_per_second": 1e3 * num_tokens / took_ms if took_ms > 0 else 0.0,
    }
