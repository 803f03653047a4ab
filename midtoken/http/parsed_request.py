"""What a request asks for, in the words of `CompletionRequest`. A module for each protocol reads its own fields.

A field that would change the text and is not offered is refused by name. Other unknown fields are ignored, as
llama-server and vLLM do. Without a temperature, the text is the most likely one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Self, TypeVar  # JSON has no types

from inference.errors import InvalidRequestError, quote
from inference.protocol.completion import (
    MAX_NAME_BYTES,
    CompletionRequest,
    Extent,
    Priority,
    RelatedFile,
    replace_surrogates,
)
from lsp_server.context import clean

_Kind = TypeVar("_Kind", bool, int, float, str, dict[str, Any], list[Any])

MAX_TOKENS = 1024  # room that is kept for the completion cannot be used by the prompt
_LIMITS = ("max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens", "num_predict")  # as protocols name it
_MAX_PROMPTS = 64  # of one request; LangChain sends 20
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

_FOLDER = re.compile(r".*[/\\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """One request, and how it is answered. Its text is not cleared yet."""

    completions: tuple[CompletionRequest, ...]  # one for each prompt; they differ in nothing else
    edited: str  # names what the client edits, as far as the fields say it
    streams: bool
    wants_usage: bool  # in an event of its own
    max_predict_ms: int  # from the first text on, if there is a whole line by then; 0 or less: no limit
    fields: tuple[str, ...]  # of the answer of llama-server; none: all
    num_top_tokens: int | None = None  # to tell the probabilities of, beside those of the text; None: none at all
    was_cut: bool = False  # whether text that is far from the cursor was left out
    reason: str = ""  # why its text is empty, whatever the model would write; empty: it need not be
    may_be_one: bool = False  # text, if the engine cannot generate several

    @property
    def first(self) -> CompletionRequest:
        """The request for the first prompt."""
        return self.completions[0]


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

    def update(self, values: Mapping[str, Any]) -> Self:
        """Returns the fields with these values in place of their own."""
        return type(self)({**self._values, **values})

    def take(self, name: str, default: _Kind) -> _Kind:
        """Returns the field, which must be of the default's kind. Of numbers, 1 and 1.0 are of both kinds."""
        value, kind = self._values.get(name, default), type(default)
        if {kind, type(value)} == {int, float} and abs(value) < 2**53 and value == int(value):
            value = kind(value)
        if type(value) is not kind:
            raise InvalidRequestError(f"{name} must be {_KINDS[kind]}, not {quote(str(value))}")
        return replace_surrogates(value) if isinstance(value, str) else value

    def take_texts(self, name: str) -> tuple[str, ...]:
        """Returns a field that is a text or a list of texts."""
        value = self._values.get(name, [])
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidRequestError(f"{name} must be a string or a list of strings, not {quote(str(value))}")
        return tuple(map(replace_surrogates, texts))

    def take_limit(self, default: int) -> int:
        """Returns the most tokens that are wanted, whatever the protocol calls them; of several limits, the lowest.

        -1 and -2 are no limit, as for llama-server and Ollama.
        """
        named = {name: self.take(name, 0) for name in _LIMITS if self.has(name)}
        for name, value in named.items():
            if value < -2:
                raise InvalidRequestError(f"{name} must be 0 or more, or -1 for no limit, not {value}")
        return min([MAX_TOKENS, *(value for value in named.values() if value >= 0)]) if named else default

    def refuse(self, fields: Mapping[str, tuple[Any, ...]]) -> None:
        """Refuses each of the fields that has another value than those."""
        for name, harmless in fields.items():
            if name in self._values and self._values[name] not in harmless:
                raise InvalidRequestError(f"{name} is not supported; omit it")


def build_request(
    fields: Fields, prompts: Sequence[SplitPrompt], default_limit: int = MAX_TOKENS, num_candidates: int = 1
) -> ParsedRequest:
    """Returns the request for these prompts, with the fields that all protocols have. Raises InvalidRequestError.

    `default_limit`: the most tokens where no limit is named. A request for none has its text read, so that a later one
    need not.
    """
    if not 1 <= len(prompts) <= _MAX_PROMPTS:
        raise InvalidRequestError(f"prompt must be 1 to {_MAX_PROMPTS} texts, not {len(prompts)}")
    temperature, slot, seed = fields.take("temperature", 0.0), fields.take("id_slot", -1), fields.take("seed", -1)
    max_tokens = fields.take_limit(default_limit)
    fields.refuse(_NOT_OFFERED if temperature == 0 else {**_NOT_OFFERED, **_NOT_SAMPLED})
    wanted = CompletionRequest(
        "",
        max_tokens=max_tokens or 1,
        stop=fields.take_texts("stop"),
        extent=Extent.BLOCK if fields.take("n_indent", 0) > 0 else Extent.UNLIMITED,
        temperature=temperature,
        top_p=fields.take("top_p", 1.0),
        seed=seed if seed >= 0 else None,
        num_candidates=num_candidates,
        tenant=fields.take("user", ""),
        min_probability=_read_confidence(fields),
        priority=Priority.INTERACTIVE if max_tokens else Priority.PREFETCH,
    )
    return ParsedRequest(
        tuple([_put_into(wanted, prompt) for prompt in prompts]),
        edited=f"slot {slot}" if slot >= 0 else "",
        streams=fields.take("stream", False),
        wants_usage=Fields(fields.take("stream_options", {})).take("include_usage", False),
        max_predict_ms=fields.take("t_max_predict_ms", 0),
        fields=fields.take_texts("response_fields"),
    )


def read_files(fields: Fields, name: str, path: str, text: str) -> list[RelatedFile]:
    """Returns other files, a list of objects. Two fields of each have its path and its text.

    Raises InvalidRequestError.
    """
    files = []
    for each in fields.take(name, []):
        if not isinstance(each, dict):
            raise InvalidRequestError(f"{name} must be a list of objects, not of {quote(str(each))}")
        part = Fields({f"{name}.{key}": value for key, value in each.items()})
        files.append(RelatedFile(_read_file_name(part, f"{name}.{path}"), part.take(f"{name}.{text}", "")))
    return files


def _read_file_name(fields: Fields, name: str) -> str:
    """Returns the path in a field without the folder, which may have the user's name. Raises InvalidRequestError."""
    found = _FOLDER.sub("", fields.take(name, ""))
    if len(found) > MAX_NAME_BYTES // 4:
        raise InvalidRequestError(f"{name} has {len(found)} characters; at most {MAX_NAME_BYTES // 4} are taken")
    return found


def _read_confidence(fields: Fields) -> float:
    confidence = fields.take("confidence", 0.0)
    if not 0 <= confidence <= 1:
        raise InvalidRequestError(f"confidence must be a number from 0 to 1, not {confidence}")
    return confidence


def _put_into(wanted: CompletionRequest, prompt: SplitPrompt) -> CompletionRequest:
    related = tuple(RelatedFile(clean(each.path), clean(each.text)) for each in prompt.related)
    before, after, path = clean(prompt.before), clean(prompt.after), clean(prompt.path)
    return replace(wanted, prefix=before, suffix=after, related=related, path=path)


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
