"""What a request asks for, in the words of `CompletionRequest`, and the parts of a prompt with markers.

A field that would change the text and is not offered is refused by name. Other unknown fields are ignored, as
llama-server and vLLM do. Without a temperature, the text is the most likely one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Self, TypeVar  # JSON has no types

from inference import fim_markers
from inference.errors import InvalidRequestError, quote
from inference.protocol.completion import (
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


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """One request, and how it is answered. Its text is not cleared yet."""

    completions: tuple[CompletionRequest, ...]  # one for each prompt; they differ in nothing else
    edited: str  # names what the client edits, as far as the fields say it
    streams: bool
    wants_usage: bool  # in an event of its own
    max_predict_ms: int  # from the first text on, if there is a whole line by then; 0 or less: no limit
    fields: tuple[str, ...]  # of the answer of llama-server; none: all
    num_top_tokens: int | None = (
        None  # reported beside those of the text, with probabilities; None: no probabilities at all
    )
    was_cut: bool = False  # whether text that is far from the cursor was left out
    reason: str = ""  # why its text is empty, whatever the model would write; empty: it need not be
    may_be_one: bool = False  # text, if the engine cannot generate several

    @property
    def first(self) -> CompletionRequest:
        """The request for the first prompt."""
        return self.completions[0]


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
    fields: Fields, prompts: Sequence[CompletionRequest], default_limit: int = MAX_TOKENS, num_candidates: int = 1
) -> ParsedRequest:
    """Returns the request for these prompts, with the fields that all protocols have. Raises InvalidRequestError.

    `default_limit`: the most tokens where no limit is named. A request for none has its text read, so that a later one
    need not.
    """
    if not 1 <= len(prompts) <= _MAX_PROMPTS:
        raise InvalidRequestError(f"prompt must be 1 to {_MAX_PROMPTS} texts, not {len(prompts)}")
    temperature, slot, seed = fields.take("temperature", 0.0), fields.take("id_slot", -1), fields.take("seed", -1)
    max_tokens, confidence = fields.take_limit(default_limit), fields.take("confidence", 0.0)
    if not 0 <= confidence <= 1:
        raise InvalidRequestError(f"confidence must be a number from 0 to 1, not {confidence}")
    fields.refuse(_NOT_OFFERED if temperature == 0 else {**_NOT_OFFERED, **_NOT_SAMPLED})
    completions = tuple(
        CompletionRequest(
            clean(each.prefix),
            clean(each.suffix),  # with the line ends that the model knows
            max_tokens=max_tokens or 1,
            stop=fields.take_texts("stop"),
            extent=Extent.BLOCK if fields.take("n_indent", 0) > 0 else Extent.UNLIMITED,
            temperature=temperature,
            top_p=fields.take("top_p", 1.0),
            seed=seed if seed >= 0 else None,
            num_candidates=num_candidates,
            tenant=fields.take("user", ""),
            min_probability=confidence,
            priority=Priority.INTERACTIVE if max_tokens else Priority.PREFETCH,
            related=tuple(RelatedFile(clean(file.path), clean(file.text)) for file in each.related),
            path=clean(each.path),
        )
        for each in prompts
    )
    return ParsedRequest(
        completions,
        edited=f"slot {slot}" if slot >= 0 else "",
        streams=fields.take("stream", False),
        wants_usage=Fields(fields.take("stream_options", {})).take("include_usage", False),
        max_predict_ms=fields.take("t_max_predict_ms", 0),
        fields=fields.take_texts("response_fields"),
    )


_NEAR_CHARS = 2**16  # on each side of the cursor, and of other files: more than a model reads, and a second of work


def cut_near(request: CompletionRequest) -> CompletionRequest:
    """Returns the request without text that is far from the cursor.

    The prefix begins with a line if it has several, and no half of a file is taken: half of a secret is not recognised.
    """
    prefix, sizes = request.prefix, accumulate(len(each.text) for each in request.related)
    if len(prefix) > _NEAR_CHARS:
        prefix = prefix[prefix.find("\n", len(prefix) - _NEAR_CHARS) + 1 or -_NEAR_CHARS :]
    files = tuple(each for each, size in zip(request.related, sizes, strict=True) if size <= _NEAR_CHARS)
    return replace(request, prefix=prefix, suffix=request.suffix[:_NEAR_CHARS], related=files)


# The markers of a prompt. Clients write those of the model that they believe to talk to.
_FILE_MARKER = re.compile(r"<\|?(repo_name|reponame|file_sep|file_separator|filename(?!>[^\n]*</))\|?>")
_START = re.compile(r"\A\s*(?:<s>|<bos>|<\|begin_of_text\|>|<｜begin▁of▁sentence｜>)")  # which the tokenizer adds
# What has the form of a marker. Texts have it within a line, templates where a line begins or the prompt ends.
_SHAPE = r"(?:<\|[^|<>\s]+\|>|<｜[^｜<>\s]+｜>|<\[[a-z]+-[a-z]+\]>|<fim[-_]\w+>|<repo_?name>|<file_sep(?:arator)?>)"
_MARKER = re.compile(rf"^{_SHAPE}|{_SHAPE}(?=\s*\Z)", re.MULTILINE)
_TOGETHER = "send prompt and suffix as separate fields"


def split_prompt(prompt: str) -> CompletionRequest:
    """Returns the parts of a prompt, if it has the markers of a model, in any order.

    A prompt without them is the text before the cursor. Markers that are not understood are refused by name, because
    the model would take them for text, too. Raises InvalidRequestError if a marker stands in the text, too,
    if one is missing, and for markers and formats that are not known.
    """
    for name, foreign in fim_markers.FOREIGN.items():
        if all(marker in prompt for marker in foreign):
            raise InvalidRequestError(f"prompt has {foreign[0]} in the format of {name}; {_TOGETHER}")
    incomplete = ""
    for markers in fim_markers.WRITTEN:
        others, *pieces = re.split(f"({'|'.join(map(re.escape, markers))})", prompt)
        sections = dict(zip(pieces[::2], pieces[1::2], strict=True))
        if sections.keys() == set(markers) and _is_template(prompt, others, markers):
            if len(pieces) > 2 * len(markers):
                raise InvalidRequestError(f"prompt has {markers[0]} or a marker like it twice; {_TOGETHER}")
            before, after, *typed = (sections[marker] for marker in markers)
            if markers == fim_markers.CODELLAMA_WRITTEN:
                before, after = _strip_codellama(before, after)
            files, added = _split_files(others), "".join(typed)
            if added.strip() or before.endswith("\n") or not before:  # otherwise the template has written its blanks
                before += added
            _refuse_unknown(before, after, files[0].text)
            related = tuple([each for each in files if each.text.strip()])
            return CompletionRequest(before, after, related=related, path=files[-1].path)
        if sections and _is_edge(prompt, markers):
            missing = next((f"no {marker}" for marker in markers if marker not in sections), "within a line")
            incomplete = incomplete or f"prompt has {pieces[0]}, but {missing}; {_TOGETHER}"
    if incomplete:
        raise InvalidRequestError(incomplete)
    first, *files = _split_files(prompt)
    if first.text.strip() or not files:
        _refuse_unknown(prompt)
        return CompletionRequest(prompt)
    _refuse_unknown(files[-1].text)  # at whose end the cursor is
    if not (files[-1].text or prompt.endswith("\n")):
        raise InvalidRequestError(f"prompt ends in the path behind a file marker; {_TOGETHER}")
    return CompletionRequest(files[-1].text, related=tuple(files[:-1]), path=files[-1].path)


def _refuse_unknown(*texts: str) -> None:
    for text in texts:
        if found := _MARKER.search(text):
            raise InvalidRequestError(f"prompt has the marker {quote(found[0])}, which is not understood; {_TOGETHER}")


def _is_template(prompt: str, others: str, markers: tuple[str, ...]) -> bool:
    """Whether the markers have been written around the prompt's parts, and do not stand in its text.

    They begin it, or follow files. Where the files have no markers, the last marker ends the prompt.
    """
    files = _START.sub("", others, count=1).lstrip()
    if not files or _FILE_MARKER.match(files):
        return True
    return files.endswith("\n") and prompt.rstrip().endswith(markers)


def _is_edge(prompt: str, markers: tuple[str, ...]) -> bool:
    """Whether a marker begins or ends the prompt, as in a template."""
    return _START.sub("", prompt, count=1).lstrip().startswith(markers) or prompt.rstrip().endswith(markers)


def _strip_codellama(before: str, after: str) -> tuple[str, str]:
    """Without the blanks of the template, which is `<PRE> before <SUF>after <MID>`, or has none of them.

    Twinny writes one behind `<SUF>`, too, and begins with `<PRE>`, other files and a blank line end.
    """
    if not (before.endswith(" ") and after.endswith(" ")):
        return before, after
    is_twinny = not before.startswith(" ") or before.startswith(" \n")
    if is_twinny or re.match(r" [\r\n]| \Z", after):
        after = after.removeprefix(" ")
    return before.removeprefix(" ")[:-1], after.removesuffix(" ")


def _split_files(text: str) -> list[RelatedFile]:
    """What stands before the first file marker, then the files. The path is the line behind a marker."""
    first, *pieces = _FILE_MARKER.split(_START.sub("", text, count=1))
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    parts = [piece.partition("\n") for kind, piece in pairs if kind.startswith("file")]
    return [RelatedFile(path.strip(), content) for path, _, content in [("", "", first), *parts]]
