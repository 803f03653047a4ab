"""What a request asks for, in the words of `CompletionRequest`: OpenAI's `/v1/completions`, llama-server's `/infill`.

A field that would change the text and is not offered is refused by name. Other unknown fields are ignored, as
llama-server and vLLM do. Without a temperature, the text is the most likely one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar  # JSON has no types

from inference import fim_markers
from inference.errors import InvalidRequestError, quote
from inference.protocol.completion import CompletionRequest, Extent, Priority, RelatedFile
from lsp_server.context import clean

_Kind = TypeVar("_Kind", bool, int, float, str, dict[str, Any], list[Any])

_MAX_TOKENS = 1024  # room that is kept for the completion cannot be used by the prompt
_NUM_INFILL_TOKENS = 128
_NUM_COMPLETION_TOKENS = 16  # OpenAI's default
_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    dict: "an object",
    list: "a list",
}

# Fields that change the text or the answer, with the values at which they do not.
_NOT_OFFERED: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("prompt_logprobs", "json_schema"), ()),
    **dict.fromkeys(("echo", "ignore_eos", "mirostat", "n_probs", "presence_penalty", "frequency_penalty"), (0,)),
    **dict.fromkeys(("best_of", "repeat_penalty", "repetition_penalty"), (1,)),
    **dict.fromkeys(("grammar", "logit_bias", "lora"), ("", {}, [])),
}
_NOT_SAMPLED: Mapping[str, tuple[Any, ...]] = {  # and those that do so only where tokens are sampled
    **dict.fromkeys(("min_p", "xtc_probability", "dry_multiplier", "dynatemp_range"), (0,)),
    "top_k": (0, -1),
    "typical_p": (1,),
}

_FILE_MARKER = re.compile(r"<\|?(repo_name|file_sep)\|?>")
_FOLDER = re.compile(r".*[/\\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """One request, and how it is answered. Its text is not cleared yet."""

    completion: CompletionRequest
    streams: bool
    wants_usage: bool  # in an event of its own
    max_predict_ms: int  # from the first text on, if there is a whole line by then; 0 or less: no limit
    fields: tuple[str, ...]  # of the answer to `/infill`; none: all
    num_top_tokens: int | None = None  # to tell the probabilities of, beside those of the text; None: none at all


@dataclass(frozen=True, slots=True)
class SplitPrompt:
    """The parts of a prompt."""

    before: str
    after: str = ""
    related: tuple[RelatedFile, ...] = ()
    path: str = ""


class Fields:
    """The fields of a request. One that is null is absent. Methods raise InvalidRequestError."""

    def __init__(self, body: object, defaults: Mapping[str, Any] = {}) -> None:
        if not isinstance(body, dict):
            raise InvalidRequestError(f"the body must be an object, not {quote(str(body))}")
        self._values = {**defaults, **{name: value for name, value in body.items() if value is not None}}

    def has(self, name: str) -> bool:
        """Returns whether the field is there."""
        return name in self._values

    def take(self, name: str, default: _Kind) -> _Kind:
        """Returns the field, which must be of the default's kind."""
        value, kind = self._values.get(name, default), type(default)
        if kind is float and type(value) is int and abs(value) < 2**53:
            value = float(value)
        if type(value) is not kind:
            raise InvalidRequestError(f"{name} must be {_KINDS[kind]}, not {quote(str(value))}")
        return value

    def take_texts(self, name: str) -> tuple[str, ...]:
        """Returns a field that is a text or a list of texts."""
        value = self._values.get(name, [])
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidRequestError(f"{name} must be a string or a list of strings, not {quote(str(value))}")
        return tuple(texts)

    def refuse(self, fields: Mapping[str, tuple[Any, ...]]) -> None:
        """Refuses each of the fields that has another value than those."""
        for name, harmless in fields.items():
            if name in self._values and self._values[name] not in harmless:
                raise InvalidRequestError(f"{name} is not supported; omit it")


def read_completion(fields: Fields, client: str, session: str) -> ParsedRequest:
    """Reads a request of `/v1/completions`. Raises InvalidRequestError.

    `session`: names what the client edits; it may be empty.
    """
    prompts = fields.take_texts("prompt")
    if len(prompts) != 1:
        raise InvalidRequestError(f"prompt must be one string, not {len(prompts)}; send a request for each")
    has_suffix = fields.has("suffix")
    prompt = SplitPrompt(prompts[0], fields.take("suffix", "")) if has_suffix else split_prompt(prompts[0])
    max_tokens = fields.take("max_tokens", _NUM_COMPLETION_TOKENS)
    parsed = _build(fields, prompt, max_tokens, fields.take("n", 1), client, session)
    return (
        replace(parsed, num_top_tokens=_read_logprobs(fields, parsed.completion)) if fields.has("logprobs") else parsed
    )


def read_infill(fields: Fields, client: str, session: str) -> ParsedRequest:
    """The same for `/infill`. The last of `input_extra` is the newest, which comes first."""
    related = tuple(_read_chunk(Fields(chunk)) for chunk in reversed(fields.take("input_extra", [])))
    before = fields.take("input_prefix", "") + fields.take("prompt", "")
    prompt = SplitPrompt(before, fields.take("input_suffix", ""), related)
    num_tokens = fields.take("n_predict", _NUM_INFILL_TOKENS)
    max_tokens = num_tokens if num_tokens >= 0 else _MAX_TOKENS  # below 0: until the end
    num_candidates = fields.take("n_cmpl", fields.take("n", 1))
    return _build(fields, prompt, max_tokens, num_candidates, client, session)


def _read_chunk(fields: Fields) -> RelatedFile:
    """Without the folder, which may have the user's name."""
    return RelatedFile(_FOLDER.sub("", fields.take("filename", "")), fields.take("text", ""))


def _read_logprobs(fields: Fields, request: CompletionRequest) -> int:
    """Of other tokens than the text's, no probabilities are known. The most likely text has the most likely tokens."""
    number, known = fields.take("logprobs", 0), 1 if request.temperature == 0 and request.num_candidates == 1 else 0
    if not 0 <= number <= known:
        raise InvalidRequestError(f"logprobs must be {'0 or 1' if known else '0'} here, not {number}")
    return number


def split_prompt(prompt: str) -> SplitPrompt:
    """Returns the parts of a prompt, if it has the markers of a model, in any order.

    A prompt without them is the text before the cursor. Raises InvalidRequestError if a marker stands in the text, too.
    """
    for markers in fim_markers.WRITTEN:
        others, *pieces = re.split(f"({'|'.join(map(re.escape, markers))})", prompt)
        sections = dict(zip(pieces[::2], pieces[1::2], strict=True))
        if sections.keys() == set(markers):
            if len(pieces) > 2 * len(markers):
                raise InvalidRequestError(
                    f"prompt has {markers[0]} or a marker like it twice; send prompt and suffix as separate fields"
                )
            before, after, *typed = (sections[marker] for marker in markers)
            return SplitPrompt("".join((before, *typed)), after, *_split_files(others))
    return SplitPrompt(prompt)


def _split_files(text: str) -> tuple[tuple[RelatedFile, ...], str]:
    """The files in the text before the markers, and the path behind the last file marker."""
    first, *pieces = _FILE_MARKER.split(text)
    parts = [piece.partition("\n") for kind, piece in zip(pieces[::2], pieces[1::2], strict=True) if kind == "file_sep"]
    named = [RelatedFile(path.strip(), content) for path, _, content in [("", "", first), *parts]]
    return tuple([each for each in named if each.text.strip()]), named[-1].path


def _build(
    fields: Fields, prompt: SplitPrompt, max_tokens: int, num_candidates: int, client: str, session: str
) -> ParsedRequest:
    """A request for no tokens has its text read, so that a later one need not."""
    temperature, slot, seed = fields.take("temperature", 0.0), fields.take("id_slot", -1), fields.take("seed", -1)
    confidence = fields.take("confidence", 0.0)
    if not 0 <= confidence <= 1:
        raise InvalidRequestError(f"confidence must be a number from 0 to 1, not {confidence}")
    fields.refuse(_NOT_OFFERED if temperature == 0 else {**_NOT_OFFERED, **_NOT_SAMPLED})
    edited = session or (f"slot {slot}" if slot >= 0 else "")
    completion = CompletionRequest(
        clean(prompt.before),
        suffix=clean(prompt.after),
        max_tokens=min(max_tokens, _MAX_TOKENS) or 1,
        stop=fields.take_texts("stop"),
        extent=Extent.BLOCK if fields.take("n_indent", 0) > 0 else Extent.UNLIMITED,
        temperature=temperature,
        top_p=fields.take("top_p", 1.0),
        seed=seed if seed >= 0 else None,
        num_candidates=num_candidates,
        tenant=fields.take("user", ""),
        document=f"{client} {edited}" if edited else "",
        min_probability=confidence,
        priority=Priority.INTERACTIVE if max_tokens else Priority.PREFETCH,
        related=tuple(RelatedFile(clean(each.path), clean(each.text)) for each in prompt.related),
        path=clean(prompt.path),
    )
    return ParsedRequest(
        completion,
        streams=fields.take("stream", False),
        wants_usage=Fields(fields.take("stream_options", {})).take("include_usage", False),
        max_predict_ms=fields.take("t_max_predict_ms", 0),
        fields=fields.take_texts("response_fields"),
    )


_NEAR_CHARS = 2**16  # on each side of the cursor, and of other files: more than a model reads, and a second of work


def cut_near(request: CompletionRequest) -> CompletionRequest:
    """The request without text that is far from the cursor."""
    prefix, suffix = _cut_far(request.prefix), request.suffix[:_NEAR_CHARS]
    return replace(request, prefix=prefix, suffix=suffix, related=_keep_first(request.related))


def _cut_far(prefix: str) -> str:
    """The end of the text, from the start of a line on if it has several: half of a secret is not recognised."""
    line = prefix.find("\n", len(prefix) - _NEAR_CHARS) + 1
    return prefix if len(prefix) <= _NEAR_CHARS else prefix[line or -_NEAR_CHARS :]


def _keep_first(files: tuple[RelatedFile, ...]) -> tuple[RelatedFile, ...]:
    """Half of a file is not taken: half of a secret is not recognised."""
    ends = accumulate(len(each.text) for each in files)
    return tuple([each for each, end in zip(files, ends, strict=True) if end <= _NEAR_CHARS])
