"""How the clients of OpenAI, llama-server and Ollama ask, and are answered: a reader of fields and a form for each.

`/v1/completions` is OpenAI's, `/infill` and `/completion` are llama-server's, and `/api/generate` is Ollama's.
"""

import dataclasses
import json
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any  # JSON has no types

from inference.errors import InvalidRequestError, quote
from inference.likely_text import LikelyText
from inference.protocol.completion import (
    MAX_NAME_BYTES,
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    FinishReason,
    RelatedFile,
)
from midtoken.http.parsed_request import MAX_TOKENS, Fields, ParsedRequest, build_request, split_prompt

# The content type of a stream, and how it has an event.
EVENTS, LINES = ("text/event-stream", "data: {}\n\n"), ("application/x-ndjson", "{}\n")
_DONE = "[DONE]"
# Of fields of a `CompletionRequest`, for a client. Each form has its own for others.
_NAMES: Mapping[str, str] = {"num_candidates": "n", "tenant": "user", "document": "the session", "prefix": "prompt"}


class Form(ABC):
    """Writes one answer of a protocol, of the chunks that have arrived. The texts of a prompt are adjacent."""

    framing = EVENTS
    hides_refusals = False  # whether clients show a message for each status but 200
    names = _NAMES  # of fields of a `CompletionRequest`, for the client

    def __init__(self, parsed: ParsedRequest, model: str) -> None:
        """`model`: its name."""
        self._parsed, self._model = parsed, model
        self._id, self._created = f"cmpl-{uuid.uuid4().hex}", int(time.time())
        self._texts = defaultdict[int, LikelyText](LikelyText)
        self._reasons = dict[int, FinishReason]()  # why texts ended
        self._stats = list[CompletionStats]()  # of each prompt; none of one whose texts were ended here

    async def read(self, chunks: AsyncGenerator[CompletionChunk, None]) -> str:
        """Returns the answer that is not streamed."""
        async for chunk in chunks:
            self._add(chunk)
        return self._to_json(self._write_whole())

    async def stream(self, chunks: AsyncGenerator[CompletionChunk, None]) -> AsyncGenerator[str, None]:
        """Yields the events of a stream."""
        async for chunk in chunks:
            self._add(chunk)
            yield self._to_json(self._write_event(chunk))
        for event in self._write_end():
            yield self._to_json(event)

    def _add(self, chunk: CompletionChunk) -> None:
        self._texts[chunk.candidate].add(chunk)
        if chunk.finish_reason is not None:
            self._reasons[chunk.candidate] = chunk.finish_reason
        if chunk.stats is not None:
            self._stats.append(chunk.stats)

    def _to_json(self, answer: Any) -> str:
        """Writes an answer, or an event; with the reason, if the text is empty for one."""
        why = {"reason": self._parsed.reason} if self._parsed.reason else {}
        if isinstance(answer, list):
            return to_json([each | why for each in answer])
        return _DONE if answer is _DONE else to_json(answer | why)

    def _sum_stats(self) -> CompletionStats:
        """Returns the cost of all prompts."""
        names = [each.name for each in dataclasses.fields(CompletionStats)]
        sums: dict[str, Any] = {name: sum(getattr(each, name) or 0 for each in self._stats) for name in names}
        return CompletionStats(**sums)

    def _name_end(self, candidate: int) -> str:
        """Returns `length` for a text that was cut off, otherwise `stop`."""
        return "length" if self._reasons.get(candidate) is FinishReason.LENGTH else "stop"

    @abstractmethod
    def _write_whole(self) -> object:
        """Returns the answer that is not streamed."""

    @abstractmethod
    def _write_event(self, chunk: CompletionChunk) -> object:
        """Returns the event of a stream for a chunk, which has been added."""

    @abstractmethod
    def _write_end(self) -> Iterator[object]:
        """Yields the last events of a stream."""


def to_json(value: object) -> str:
    """Returns JSON without blanks: llama.vim shows only an answer that contains `"content":"`."""
    return json.dumps(value, separators=(",", ":"))


_NUM_TOKENS = 16  # OpenAI's default


def read_openai(fields: Fields) -> ParsedRequest:
    """Reads a request of `/v1/completions`. Raises InvalidRequestError."""
    texts, suffix = fields.take_texts("prompt"), fields.take("suffix", "")
    prompts = [CompletionRequest(each, suffix) if fields.has("suffix") else split_prompt(each) for each in texts]
    parsed = build_request(fields, prompts, _NUM_TOKENS, fields.take("n", 1))
    if not fields.has("logprobs"):
        return parsed
    # Of other tokens than the text's, no probabilities are known. The most likely text has the most likely tokens.
    number, is_likely = fields.take("logprobs", 0), parsed.first.temperature == 0 and parsed.first.num_candidates == 1
    if not 0 <= number <= is_likely:
        raise InvalidRequestError(f"logprobs must be {'0 or 1' if is_likely else '0'} here, not {number}")
    return replace(parsed, num_top_tokens=number)


class OpenAiForm(Form):
    """Writes one answer of `/v1/completions`."""

    def _write_whole(self) -> object:
        choices = [self._write_choice(each, self._name_end(each)) for each in sorted(self._texts)]
        return self._write(choices) | {"usage": self._write_usage()}

    def _write_event(self, chunk: CompletionChunk) -> object:
        start = len(self._texts[chunk.candidate].text) - len(chunk.text)
        ended = None if chunk.finish_reason is None else self._name_end(chunk.candidate)
        return self._write([self._write_choice(chunk.candidate, ended, start)])

    def _write_end(self) -> Iterator[object]:
        if self._parsed.wants_usage:
            yield self._write([]) | {"usage": self._write_usage()}
        yield _DONE

    def _write(self, choices: list[object]) -> dict[str, Any]:
        head = {"id": self._id, "created": self._created, "model": self._model}
        return {**head, "object": "text_completion", "choices": choices}

    def _write_choice(self, candidate: int, ended: str | None, start: int = 0) -> object:
        likely, num_top = self._texts[candidate], self._parsed.num_top_tokens
        tokens = [*likely.read_tokens(start)]
        logprobs = {
            "tokens": [each.text for each in tokens],
            "token_logprobs": [each.log_prob for each in tokens],
            "text_offset": [each.start for each in tokens],
            "top_logprobs": [{each.text: each.log_prob} for each in tokens] if num_top else None,
        }
        shown = None if num_top is None else logprobs
        return {"index": candidate, "text": likely.text[start:], "logprobs": shown, "finish_reason": ended}

    def _write_usage(self) -> object:
        stats = self._sum_stats()
        known = [each.num_cached_tokens for each in self._stats if each.num_cached_tokens is not None]
        details = {"prompt_tokens_details": {"cached_tokens": sum(known)}} if len(known) == len(self._stats) else {}
        return {
            "prompt_tokens": stats.num_context_tokens,
            "completion_tokens": stats.num_tokens,
            "total_tokens": stats.num_context_tokens + stats.num_tokens,
            **details,
        }


def list_openai_models(model: str) -> dict[str, Any]:
    """Returns the answer that names the one model."""
    return {"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": "midtoken"}]}


_NUM_INFILL_TOKENS = 128  # where no limit is named
_STOP_TYPES = {FinishReason.END: "eos", FinishReason.STOP: "word"}


def read_infill(fields: Fields) -> ParsedRequest:
    """Reads a request of `/infill`. The last of `input_extra` is the newest, which comes first.

    Raises InvalidRequestError.
    """
    files = []
    for each in reversed(fields.take("input_extra", [])):
        if not isinstance(each, dict):
            raise InvalidRequestError(f"input_extra must be a list of objects, not of {quote(str(each))}")
        part = Fields({f"input_extra.{key}": value for key, value in each.items()})
        name = re.split(r"[/\\]", part.take("input_extra.filename", ""))[-1]  # a folder may have the user's name
        if len(name) > MAX_NAME_BYTES // 4:
            raise InvalidRequestError(
                f"input_extra.filename has {len(name)} characters; at most {MAX_NAME_BYTES // 4} are taken"
            )
        files.append(RelatedFile(name, part.take("input_extra.text", "")))
    before = fields.take("input_prefix", "") + fields.take("prompt", "")
    return _build(
        fields, [CompletionRequest(before, fields.take("input_suffix", ""), related=tuple(files))], _NUM_INFILL_TOKENS
    )


def read_completion(fields: Fields) -> ParsedRequest:
    """Reads a request of `/completion`. Raises InvalidRequestError."""
    return _build(fields, [split_prompt(each) for each in fields.take_texts("prompt")], MAX_TOKENS)


def _build(fields: Fields, prompts: Sequence[CompletionRequest], default: int) -> ParsedRequest:
    num_candidates = fields.take("n_cmpl", fields.take("n", 1))
    return replace(build_request(fields, prompts, default, num_candidates), may_be_one=num_candidates > 1)


class LlamaServerForm(Form):
    """Writes one answer of `/infill` or `/completion`."""

    hides_refusals = True
    names: Mapping[str, str] = {
        **_NAMES,
        **{"prefix": "the text before the cursor", "suffix": "input_suffix"},
        **{"num_candidates": "n or n_cmpl", "related": "input_extra"},
    }

    def _write_whole(self) -> object:
        results = [self._write_result(number, each.text) for number, each in sorted(self._texts.items())]
        is_one = len(self._parsed.completions) == self._parsed.first.num_candidates == 1
        return results[0] if is_one else results

    def _write_event(self, chunk: CompletionChunk) -> object:
        return {"index": chunk.candidate, "content": chunk.text, "tokens": [], "stop": False}

    def _write_end(self) -> Iterator[object]:
        return (self._write_result(each, "") for each in sorted(self._texts))

    def _write_result(self, candidate: int, content: str) -> dict[str, Any]:
        request, reason = self._parsed.first, self._reasons.get(candidate)
        result: dict[str, Any] = {
            "index": candidate,
            "content": content,
            "tokens": [],
            "stop": True,
            "model": self._model,
            "stop_type": "limit" if reason is None else _STOP_TYPES.get(reason, "limit"),
            "has_new_line": "\n" in self._texts[candidate].text,
            "truncated": self._parsed.was_cut,
            "generation_settings": {"n_predict": request.max_tokens, "temperature": request.temperature},
        }
        for stats in self._stats[candidate // request.num_candidates :][:1]:
            result |= _write_costs(stats) | {"truncated": self._parsed.was_cut or stats.was_cut}
        if not self._parsed.fields:
            return result
        result |= {f"timings/{name}": value for name, value in result.get("timings", {}).items()}
        return {name: value for name, value in result.items() if name in self._parsed.fields}


def _write_costs(stats: CompletionStats) -> dict[str, Any]:
    """The times are those until the first text and until the end: often a text comes at once."""
    prompt = _write_speed("prompt", stats.num_read_tokens, stats.first_chunk_ms - stats.queue_ms)
    predicted = _write_speed("predicted", stats.num_tokens, stats.total_ms - stats.queue_ms)
    return {
        "tokens_evaluated": stats.num_context_tokens,
        "tokens_predicted": stats.num_tokens,
        "tokens_cached": stats.num_context_tokens + stats.num_tokens,
        "timings": {"cache_n": stats.num_cached_tokens or 0, **prompt, **predicted},
    }


def _write_speed(name: str, num_tokens: int, took_ms: float) -> dict[str, float]:
    return {
        f"{name}_n": num_tokens,
        f"{name}_ms": took_ms,
        f"{name}_per_token_ms": took_ms / max(num_tokens, 1),
        f"{name}_per_second": 1e3 * num_tokens / took_ms if took_ms > 0 else 0.0,
    }


def list_slots(num_context_tokens: int) -> list[dict[str, Any]]:
    """Returns the answer of `/slots`: one that is free, because no request waits for another's slot."""
    params = {"n_predict": -1, "temperature": 0.0, "top_p": 1.0, "seed": -1, "stop": [], "stream": False}
    slot = {"id": 0, "id_task": -1, "n_ctx": num_context_tokens, "speculative": False, "is_processing": False}
    return [{**slot, "params": params, "prompt": "", "next_token": {"has_next_token": False, "n_decoded": 0}}]


def write_props(model: str, num_context_tokens: int) -> object:
    """Returns the answer of `/props`."""
    return {
        "default_generation_settings": list_slots(num_context_tokens)[0],
        "total_slots": 1,
        "model_alias": model,
        "model_path": model,
        "chat_template": "",
        "modalities": {"vision": False, "audio": False},
        "build_info": f"midtoken {version('midtoken')}",
        "is_sleeping": False,
    }


class TokenIds:
    """Answers `/tokenize` here, so that the text goes nowhere. `model_dir`: the folder with the tokenizer."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir

    def tokenize(self, fields: Fields) -> object:
        """Returns the ids of a text, in which U+FFFD replaces what no tokens spell. Raises InvalidRequestError.

        With `with_pieces`, each has the text that it spells; the bytes, if these are a part of a character.
        """
        fields.refuse({"parse_special": (True,)})
        tokenizer, encoder, token_bytes = self._loaded
        text, adds_start = encoder.replace_unspelled(fields.take("content", "")), fields.take("add_special", False)
        ids = tokenizer.encode(text, add_special_tokens=adds_start).ids
        if not fields.take("with_pieces", False):
            return {"tokens": ids}
        pieces = [token_bytes[each] or tokenizer.id_to_token(each).encode() for each in ids]
        texts = [piece.decode(errors="replace") for piece in pieces]
        shown = [text if text.encode() == piece else [*piece] for text, piece in zip(texts, pieces, strict=True)]
        return {"tokens": [{"id": each, "piece": piece} for each, piece in zip(ids, shown, strict=True)]}

    @cached_property
    def _loaded(self) -> Any:
        from inference.healing.loaded_tokenizer import build_text_encoder  # here, because few clients ask
        from inference.healing.tokenizer_file import read_tokenizer_file
        from inference.healing.vocabulary_file import read_vocabulary

        file = read_tokenizer_file(self._model_dir)
        return file.tokenizer, build_text_encoder(file), read_vocabulary(self._model_dir, file.spec).token_bytes


OLLAMA_RUNS = "Ollama is running"  # at `/`; clients look for it
OLLAMA_VERSION = {"version": "0.13.0"}  # of `/api/version`; clients refuse older ones than they know
_DETAILS = {
    **dict.fromkeys(("parent_model", "format", "parameter_size", "quantization_level"), ""),
    **{"family": "midtoken", "families": ["midtoken"]},
}
_NOT_OFFERED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("system", "template", "format"), ("",)),
    **dict.fromkeys(("images", "context"), ([],)),
    **dict.fromkeys(("think", "logprobs"), (False,)),
}


def read_ollama(fields: Fields) -> ParsedRequest:
    """Reads a request of `/api/generate`. Raises InvalidRequestError. Without a text, it asks for the model only."""
    fields.refuse(_NOT_OFFERED)
    text, suffix = fields.take("prompt", ""), fields.take("suffix", "")
    fields = fields.update({**fields.take("options", {}), "stream": fields.take("stream", True)})
    prompt = CompletionRequest(text, suffix) if suffix else split_prompt(text)
    return build_request(fields if text or suffix else fields.update({"num_predict": 0}), [prompt])


class OllamaForm(Form):
    """Writes one answer of `/api/generate`."""

    framing = LINES

    def _write_whole(self) -> object:
        return self._write_last(self._texts[0].text)

    def _write_event(self, chunk: CompletionChunk) -> object:
        return self._write(chunk.text, done=False)

    def _write_end(self) -> Iterator[object]:
        yield self._write_last("")

    def _write_last(self, text: str) -> object:
        """The times are those until the first text and from it to the end, in nanoseconds."""
        stats = self._sum_stats()
        is_load = self._reasons.get(0) is FinishReason.PREFILLED
        return {
            **self._write(text, done=True),
            "done_reason": "load" if is_load else self._name_end(0),
            "total_duration": int(1e6 * stats.total_ms),
            "load_duration": 0,
            "prompt_eval_count": stats.num_context_tokens,
            "prompt_eval_duration": int(1e6 * stats.first_chunk_ms),
            "eval_count": stats.num_tokens,
            "eval_duration": int(1e6 * max(stats.total_ms - stats.first_chunk_ms, 0)),
        }

    def _write(self, text: str, *, done: bool) -> dict[str, Any]:
        return {"model": self._model, "created_at": datetime.now(UTC).isoformat(), "response": text, "done": done}


def list_ollama_models(model: str) -> object:
    """Returns the answer of `/api/tags`, and of `/api/ps`: the model is loaded, and stays so."""
    times = {"modified_at": "1970-01-01T00:00:00Z", "expires_at": "9999-12-31T23:59:59Z"}
    known = {"name": model, "model": model, "size": 0, "size_vram": 0, "digest": ""}
    return {"models": [{**known, **times, "details": _DETAILS}]}


def show_ollama_model(num_context_tokens: int) -> object:
    """Returns the answer of `/api/show`. Of the template, clients only look whether it has a suffix."""
    info = {"general.architecture": "midtoken", "midtoken.context_length": num_context_tokens}
    texts = dict.fromkeys(("license", "modelfile", "parameters"), "")
    template, capabilities = "{{ .Prompt }}{{ .Suffix }}", ["completion", "insert"]
    return {**texts, "template": template, "details": _DETAILS, "model_info": info, "capabilities": capabilities}
