"""OpenAI's `/v1/completions`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any  # JSON has no types

from inference.errors import InvalidRequestError
from inference.likely_text import LikelyToken
from inference.protocol.completion import CompletionChunk, CompletionRequest
from midtoken.http.fim_prompt import split_prompt
from midtoken.http.form import DONE, Form, Texts
from midtoken.http.parsed_request import Fields, ParsedRequest, SplitPrompt, build_request

_NUM_TOKENS = 16  # OpenAI's default


def read_completion(fields: Fields) -> ParsedRequest:
    """Reads a request. Raises InvalidRequestError."""
    texts, suffix = fields.take_texts("prompt"), fields.take("suffix", "")
    prompts = [SplitPrompt(each, suffix) if fields.has("suffix") else split_prompt(each) for each in texts]
    parsed = build_request(fields, prompts, _NUM_TOKENS, fields.take("n", 1))
    return replace(parsed, num_top_tokens=_read_logprobs(fields, parsed.first)) if fields.has("logprobs") else parsed


def _read_logprobs(fields: Fields, request: CompletionRequest) -> int:
    """Of other tokens than the text's, no probabilities are known. The most likely text has the most likely tokens."""
    number, known = fields.take("logprobs", 0), 1 if request.temperature == 0 and request.num_candidates == 1 else 0
    if not 0 <= number <= known:
        raise InvalidRequestError(f"logprobs must be {'0 or 1' if known else '0'} here, not {number}")
    return number


def list_models(model: str) -> dict[str, Any]:
    """Returns the answer that names the one model."""
    return {
        "object": "list",
        "data": [{"id": model, "object": "model", "created": 0, "owned_by": "midtoken"}],
    }


class CompletionForm(Form):
    """Writes one answer of `/v1/completions`."""

    def write_whole(self, texts: Texts) -> object:
        """See `Form`."""
        choices = [self._write_choice(each, texts, texts.name_end(each)) for each in sorted(texts.texts)]
        return {**self._head, "object": "text_completion", "choices": choices, "usage": _write_usage(texts)}

    def write_event(self, chunk: CompletionChunk, texts: Texts) -> object:
        """See `Form`."""
        start = len(texts.texts[chunk.candidate].text) - len(chunk.text)
        ended = None if chunk.finish_reason is None else texts.name_end(chunk.candidate)
        return {
            **self._head,
            "object": "text_completion",
            "choices": [self._write_choice(chunk.candidate, texts, ended, start)],
        }

    def write_end(self, texts: Texts) -> Iterator[object]:
        """See `Form`."""
        if self._parsed.wants_usage:
            yield {**self._head, "object": "text_completion", "choices": [], "usage": _write_usage(texts)}
        yield DONE

    def _write_choice(self, candidate: int, texts: Texts, ended: str | None, start: int = 0) -> object:
        likely, num_top = texts.texts[candidate], self._parsed.num_top_tokens
        logprobs = None if num_top is None else _write_logprobs([*likely.read_tokens(start)], num_top)
        return {"index": candidate, "text": likely.text[start:], "logprobs": logprobs, "finish_reason": ended}


def _write_logprobs(tokens: list[LikelyToken], num_top: int) -> dict[str, Any]:
    return {
        "tokens": [each.text for each in tokens],
        "token_logprobs": [each.log_prob for each in tokens],
        "text_offset": [each.start for each in tokens],
        "top_logprobs": [{each.text: each.log_prob} for each in tokens] if num_top else None,
    }


def _write_usage(texts: Texts) -> Mapping[str, Any]:
    stats = texts.sum_stats()
    cached = stats.num_context_tokens - stats.num_read_tokens
    return {**texts.write_usage(), "prompt_tokens_details": {"cached_tokens": cached}}
