"""Finds secrets in text: tokens of known forms, values that are assigned to names, and private keys.

The expressions are RE2's: their time is linear in the length of the text, whatever it says. So a text is read as a
whole for each key, and nothing is remembered. What a form cannot say, a rule below says of what was found: whether
characters look random, whether a name is that of a secret, whether a value is one or is code.
"""

import re

import re2

from lsp_server.privacy.forms import ANY_TOKEN, BEGINNINGS, SHAPES
from lsp_server.privacy.named_values import Span, find_named_values
from lsp_server.privacy.surprise import is_random

_REST = r"[\w.+/=~%-]"
_BEGINNING = "(?:" + "|".join(beginning for _, beginning, _ in BEGINNINGS) + ")"
_TOKEN = re2.compile(rf"(?:\b|_){_BEGINNING}({_REST}{{16,}})")
_ANY_TOKEN = re2.compile(rf"\b{ANY_TOKEN}")
_SHAPE = re2.compile(r"(?:\b|_)(?:" + "|".join(shape for _, shape, _ in SHAPES) + r")[\w-]*")

# The lines of a key, and what may stand between them: line ends, quotes, comment signs.
_AROUND = r"(?:[ \t\r\"'`#*;|>,()\\+]|//|[bfr][\"'])*"
_BETWEEN = rf"{_AROUND}(?:(?:\n|\\[nr]){_AROUND})+"
_HEADER = r"(?:[A-Z][A-Za-z-]*: ?[^\n\\]*(?:\n|\\n))"
_KEY = re2.compile(
    rf"PRIVATE KEY(?: BLOCK)?-*(?:{_BETWEEN}|{_HEADER})*[A-Za-z0-9+/=]{{16,}}(?:{_BETWEEN}[A-Za-z0-9+/=]{{16,}})*"
    rf"(?:{_BETWEEN}[A-Za-z0-9+/]+={{1,2}})?"
    rf"|[A-Za-z0-9+/]{{32,}}(?:{_BETWEEN}[A-Za-z0-9+/=]{{32,}})+(?:{_BETWEEN}[A-Za-z0-9+/]+={{1,2}})?"
    rf"|[A-Za-z0-9+/=]{{8,}}{_BETWEEN}-+ ?END [A-Z0-9 ]*PRIVATE KEY"
)
_LONG = re2.compile(r"[\w+/%.-]{300,}=*")  # the name beside it may not be in the text
_STRING = re2.compile(r"[\"'`]([\w+/=.~!@#$%^&*-]{16,})")
# Strings with escapes: what one says may be code, as the lines of a notebook are, so it is searched by itself.
_ESCAPED = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)+')
_CHAR = re.compile(r"\\n$|\\?(.)")  # the string's own quote begins a line, so its last line end is left out
_SAID = {'"': "\n", r"\n": "\n", r"\t": "\t", r"\r": " "}
# What is being typed at the end of a line: a token of a known form, other random characters, a password in an address.
_TYPED_TOKEN = re2.compile(rf"(?:\b|_){_BEGINNING}({_REST}{{4,}})$")
_TYPED = re2.compile(r"(^|[\"'`]|[=:][ \t]?)(?:SK|AC|\d{8,}:)?([\w+=.~%-]{10,})$")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.]*")
_NUMBER = re.compile(r"0x[0-9a-fA-F_]+[uUlL]*")
_TYPED_PASSWORD = re2.compile(r"://[^\s/:@\"'`]*:[^\s\"'`/{$<%]*[^\s\"'`/{$<%\d][^\s\"'`]*$")


def find_secrets(text: str, is_strict: bool = False) -> list[Span]:
    r"""Returns where secrets are, in order; no two of them touch. Lines end with \n.

    `is_strict`: a string that looks random is a secret, whatever its name.
    """
    said, places = _read_strings(text)
    in_strings = (Span(places[span.start], places[span.end - 1] + 1) for span in _find_spans(said, is_strict))
    outside = _ESCAPED.sub(lambda string: string[0].replace(r"\"", r"\."), text)  # quotes in a string end none of it
    return _merge([*_find_spans(outside, is_strict), *in_strings])


def _find_spans(text: str, is_strict: bool) -> list[Span]:
    spans = [Span(*match.span()) for match in _SHAPE.finditer(text)]
    spans += (Span(*match.span()) for match in _TOKEN.finditer(text) if is_random(match[1], 8))
    tokens = (match for match in _ANY_TOKEN.finditer(text) if not match[0].startswith("sha"))  # checksums
    spans += (Span(*match.span()) for match in tokens if is_random(match[1]))
    spans += (Span(*match.span()) for match in _KEY.finditer(text) if _is_key(match[0]))
    spans += (Span(*match.span()) for match in _LONG.finditer(text) if is_random(match[0]))
    if is_strict:
        spans += (Span(*match.span(1)) for match in _STRING.finditer(text) if is_random(match[1], 20))
    return [span for span in [*spans, *find_named_values(text)] if span.start < span.end]


def _read_strings(text: str) -> tuple[str, list[int]]:
    """Returns what the strings with escapes say, and where each character of that is."""
    chars = (char for string in _ESCAPED.finditer(text) for char in _CHAR.finditer(text, *string.span()) if char[1])
    said = [(_SAID.get(char[0], char[1]), char.start(1)) for char in chars]
    return "".join(char for char, _ in said), [place for _, place in said]


def ends_in_secret(line: str) -> bool:
    """True if a line ends in what may become a secret while it is typed. The names of programs are none."""
    token, typed = _TYPED_TOKEN.search(line), _TYPED.search(line)
    if token is not None and _IDENTIFIER.fullmatch(token[0]) is not None:
        return is_random(token[1], 12, 4)
    if token is not None and (is_random(token[1], 6, 4) or sum(map(str.isdigit, token[1])) >= 6):
        return True
    if typed is not None and _NUMBER.fullmatch(typed[2]) is None:
        is_name = typed[1] not in ('"', "'", "`") and _IDENTIFIER.fullmatch(typed[2]) is not None
        if is_random(typed[2], 30 if is_name else 18):
            return True
    return _TYPED_PASSWORD.search(line) is not None


def _is_key(text: str) -> bool:
    return is_random(text) and any(map(str.islower, text)) and any(map(str.isupper, text))


def _merge(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(span.end, merged[-1].end))
        else:
            merged.append(span)
    return merged
