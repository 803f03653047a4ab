"""Added tokens: strings that a tokenizer finds in a text before everything else. Each is text or a control token.

An added token is a control token if the file says so (`special`), or if it looks like one:

| looks like | examples |
|---|---|
| something between `<|` and `|>`, or with wide bars | `<|fim_prefix|>`, `<|im_start|>`, `<｜tool▁calls▁begin｜>` |
| a name in brackets, or in brackets the other way round | `[INST]`, `[/INST]`, `[TOOL_CALLS]`, `]<]end[>[` |
| a name in angle brackets that is no element of HTML | `<tool_call>`, `<start_of_turn>`, `<unused12>`, `<think>` |

Every other added token is text: runs of blanks and of line ends (GPT-NeoX, Phi, Gemma), tags of HTML (Gemma), letters
and words. Text that looks like a control token is never encoded as one.

So `<s>`, an element of HTML, is text if the file does not mark it as special (Gemma).
"""

import re
from dataclasses import dataclass
from typing import Any

_Json = Any  # an item of "added_tokens", whose shape the reader of the file checks

_BARS = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)
_BRACKETS = re.compile(r"\[/?[A-Za-z]\w*\]|\].+\[")
_ANGLES = re.compile(r"[▁ ]?</?([^<>\s/]+)>")
_HTML_ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        "a abbr article aside b blockquote body br button caption center cite code col colgroup dd del div dl "
        "dt em figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i iframe img input ins "
        "kbd label li link main mark meta nav ol option p pre q s samp script section select small span strike "
        "strong style sub sup svg table tbody td textarea tfoot th thead title tr tt u ul var",
    )
)


@dataclass(frozen=True, slots=True)
class AddedToken:
    """One item of `added_tokens` in a `tokenizer.json`."""

    token_id: int
    content: str
    is_control: bool  # a mark that no text is encoded as; otherwise ordinary text
    is_normalized: bool  # found in the text after the normalizer, not before it
    flags: tuple[str, ...]  # those of `single_word`, `lstrip` and `rstrip` that are set


def read_added_tokens(spec: _Json) -> tuple[AddedToken, ...]:
    """The added tokens of a `tokenizer.json`. Raises KeyError or TypeError if it is not as it should be."""
    return tuple(
        AddedToken(
            token_id=added["id"],
            content=added["content"],
            is_control=bool(added["special"]) or _looks_like_control(added["content"]),
            is_normalized=bool(added.get("normalized", False)),
            flags=tuple(flag for flag in ("single_word", "lstrip", "rstrip") if added.get(flag)),
        )
        for added in spec.get("added_tokens") or ()
    )


def _looks_like_control(content: str) -> bool:
    if not content or _BARS.search(content) or _BRACKETS.fullmatch(content):
        return True
    angles = _ANGLES.fullmatch(content)
    return angles is not None and angles[1] not in _HTML_ELEMENTS
