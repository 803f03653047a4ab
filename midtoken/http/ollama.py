"""Ollama's `/api/generate`, and what its clients ask about the model."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any  # JSON has no types

from inference.protocol.completion import CompletionChunk, FinishReason
from midtoken.http.fim_prompt import split_prompt
from midtoken.http.form import LINES, Form, Texts
from midtoken.http.parsed_request import Fields, ParsedRequest, SplitPrompt, build_request

RUNNING = "Ollama is running"  # at `/`; clients look for it
_VERSION = "0.13.0"  # of Ollama; clients refuse older ones than they know
# Of a template, only whether the model knows a suffix: a prompt is completed, not put into one.
_TEMPLATE = "{{ .Prompt }}{{ .Suffix }}"
_DETAILS = {
    **dict.fromkeys(("parent_model", "format", "parameter_size", "quantization_level"), ""),
    "family": "midtoken",
    "families": ["midtoken"],
}
_NOT_OFFERED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("system", "template", "format"), ("",)),
    **dict.fromkeys(("images", "context"), ([],)),
    **dict.fromkeys(("think", "logprobs"), (False,)),
}


def read_generate(fields: Fields) -> ParsedRequest:
    """Reads a request of `/api/generate`. Raises InvalidRequestError. Without a text, it asks for the model only."""
    fields.refuse(_NOT_OFFERED)
    text, suffix = fields.take("prompt", ""), fields.take("suffix", "")
    fields = fields.update({**fields.take("options", {}), "stream": fields.take("stream", True)})
    prompt = SplitPrompt(text, suffix) if suffix else split_prompt(text)
    return build_request(fields if text or suffix else fields.update({"num_predict": 0}), [prompt])


class GenerateForm(Form):
    """Writes one answer of `/api/generate`."""

    framing = LINES

    def write_whole(self, texts: Texts) -> object:
        """See `Form`."""
        return self._write_last(texts.texts[0].text, texts)

    def write_event(self, chunk: CompletionChunk, _texts: Texts) -> object:
        """See `Form`."""
        return self._write(chunk.text, done=False)

    def write_end(self, texts: Texts) -> Iterator[object]:
        """See `Form`."""
        yield self._write_last("", texts)

    def _write_last(self, text: str, texts: Texts) -> object:
        """The times are those until the first text and from it to the end, in nanoseconds."""
        stats = texts.sum_stats()
        return {
            **self._write(text, done=True),
            "done_reason": "load" if texts.reasons.get(0) is FinishReason.PREFILLED else texts.name_end(0),
            "total_duration": int(1e6 * stats.total_ms),
            "load_duration": 0,
            "prompt_eval_count": stats.num_context_tokens,
            "prompt_eval_duration": int(1e6 * stats.first_chunk_ms),
            "eval_count": stats.num_tokens,
            "eval_duration": int(1e6 * max(stats.total_ms - stats.first_chunk_ms, 0)),
        }

    def _write(self, text: str, *, done: bool) -> dict[str, Any]:
        return {"model": self._model, "created_at": datetime.now(UTC).isoformat(), "response": text, "done": done}


def list_models(model: str) -> object:
    """Returns the answer of `/api/tags`, and of `/api/ps`: the model is loaded, and stays so."""
    times = {"modified_at": "1970-01-01T00:00:00Z", "expires_at": "9999-12-31T23:59:59Z"}
    known = {"name": model, "model": model, "size": 0, "size_vram": 0, "digest": ""}
    return {"models": [{**known, **times, "details": _DETAILS}]}


def show_model(num_context_tokens: int) -> object:
    """Returns the answer of `/api/show`."""
    info = {"general.architecture": "midtoken", "midtoken.context_length": num_context_tokens}
    texts = dict.fromkeys(("license", "modelfile", "parameters"), "")
    capabilities = ["completion", "insert"]
    return {**texts, "template": _TEMPLATE, "details": _DETAILS, "model_info": info, "capabilities": capabilities}


def tell_version() -> object:
    """Returns the answer of `/api/version`."""
    return {"version": _VERSION}
