"""llama-server's `/infill` and `/completion`, what it tells of itself, and its tokens."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any  # JSON has no types
from unicodedata import normalize

from inference.errors import InvalidRequestError
from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason
from midtoken.http.fim_prompt import split_prompt
from midtoken.http.form import NAMES, Form, Texts
from midtoken.http.parsed_request import (
    MAX_TOKENS,
    Fields,
    ParsedRequest,
    SplitPrompt,
    build_request,
    read_files,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NUM_INFILL_TOKENS = 128
_REASONS = {FinishReason.END: "eos", FinishReason.STOP: "word"}


def read_infill(fields: Fields) -> ParsedRequest:
    """Reads a request of `/infill`. The last of `input_extra` is the newest, which comes first.

    Raises InvalidRequestError.
    """
    related = tuple(reversed(read_files(fields, "input_extra", "filename", "text")))
    before = fields.take("input_prefix", "") + fields.take("prompt", "")
    return _build(fields, [SplitPrompt(before, fields.take("input_suffix", ""), related)], _NUM_INFILL_TOKENS)


def read_completion(fields: Fields) -> ParsedRequest:
    """Reads a request of `/completion`. Raises InvalidRequestError."""
    return _build(fields, [split_prompt(each) for each in fields.take_texts("prompt")], MAX_TOKENS)


def _build(fields: Fields, prompts: Sequence[SplitPrompt], default: int) -> ParsedRequest:
    num_candidates = fields.take("n_cmpl", fields.take("n", 1))
    return replace(build_request(fields, prompts, default, num_candidates), may_be_one=num_candidates > 1)


class InfillForm(Form):
    """Writes one answer of `/infill` or `/completion`."""

    hides_refusals = True
    names: Mapping[str, str] = {
        **NAMES,
        **{"prefix": "the text before the cursor", "suffix": "input_suffix"},
        "num_candidates": "n or n_cmpl",
        "related": "input_extra",
    }

    def write_whole(self, texts: Texts) -> object:
        """See `Form`."""
        results = [self._write_result(each, texts.texts[each].text, texts) for each in sorted(texts.texts)]
        is_one = len(self._parsed.completions) == self._parsed.first.num_candidates == 1
        return results[0] if is_one else results

    def write_event(self, chunk: CompletionChunk, _texts: Texts) -> object:
        """See `Form`."""
        return {"index": chunk.candidate, "content": chunk.text, "tokens": [], "stop": False}

    def write_end(self, texts: Texts) -> Iterator[object]:
        """See `Form`."""
        return (self._write_result(each, "", texts) for each in sorted(texts.texts))

    def _write_result(self, candidate: int, content: str, texts: Texts) -> dict[str, Any]:
        request, reason = self._parsed.first, texts.reasons.get(candidate)
        result: dict[str, Any] = {
            "index": candidate,
            "content": content,
            "tokens": [],
            "stop": True,
            "model": self._model,
            "stop_type": "limit" if reason is None else _REASONS.get(reason, "limit"),
            "has_new_line": "\n" in texts.texts[candidate].text,
            "truncated": self._parsed.was_cut,
            "generation_settings": {"n_predict": request.max_tokens, "temperature": request.temperature},
        }
        for stats in texts.stats[candidate // request.num_candidates :][:1]:
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
        "timings": {"cache_n": stats.num_context_tokens - stats.num_read_tokens, **prompt, **predicted},
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
    """Answers `/tokenize` and `/detokenize` here, so that the text goes nowhere."""

    def __init__(self, path: Path) -> None:
        """`path`: of the model's `tokenizer.json`."""
        self._path = path

    def tokenize(self, fields: Fields) -> object:
        """Returns the ids of a text, in which U+FFFD replaces what no tokens spell. Raises InvalidRequestError."""
        fields.refuse({"with_pieces": (False,), "parse_special": (True,)})
        text, adds_special = fields.take("content", ""), fields.take("add_special", False)
        text = text.translate({ord(each): "\ufffd" for each in set(text) if not self._spells(each)})
        return {"tokens": self._tokenizer.encode(text, add_special_tokens=adds_special).ids}

    def detokenize(self, fields: Fields) -> object:
        """Returns the text of ids. Raises InvalidRequestError."""
        ids, known = fields.take("tokens", []), range(self._tokenizer.get_vocab_size())
        if not all(type(each) is int and each in known for each in ids):
            raise InvalidRequestError(f"tokens must be a list of whole numbers from 0 to {known[-1]}")
        return {"content": self._tokenizer.decode(ids, skip_special_tokens=False)}

    def _spells(self, character: str) -> bool:
        """Whether the ids of the character are those of nothing else: the library omits bytes that have no token."""
        shown = self._tokenizer.decode(self._tokenizer.encode(character, add_special_tokens=False).ids)
        return character in " \u2581" or normalize("NFC", character) in normalize("NFC", shown)

    @cached_property
    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer  # here, because few clients ask

        return Tokenizer.from_file(str(self._path))
