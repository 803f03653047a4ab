"""Finds secrets in text: tokens of known forms, values that are assigned to names, and private keys.

The expressions are RE2's: their time is linear in the length of the text, whatever it says. So a text is read as a
whole for each key, and nothing is remembered. What a form cannot say, a rule below says of what was found: whether
characters look random, whether a name is that of a secret, whether a value is one or is code.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import re2

from lsp_server.privacy.forms import ANY_TOKEN, BEGINNINGS, COMMON_PAIRS, PLACES, SHAPES


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """From a character to before another one."""

    start: int
    end: int


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
_STRING = re2.compile(r"[\"'`]([\w+/=.~!@#$%^&*-]{16,})")
# What is being typed at the end of a line: random characters, or a password in an address.
_TYPED = re2.compile(r"(?:^|[\"'`=:>\s])([\w+/=.~%-]{8,})$|://[^\s/:@\"'`]*:[^\s\"'`/{$<]*[^\s\"'`/{$<\d][^\s\"'`]*$")
_PLACES = [(name, is_quoted, re2.compile(place)) for name, is_quoted, place in PLACES]

_MAX_READ_CHARS = 200  # of a name or a value: these tell what it is
_MAX_COMMON_SHARE = 0.45
_COMMON_PAIRS = frozenset(COMMON_PAIRS.split())

# How the name of a password ends, and that of something which may be a secret if it looks random. Words after that,
# but those of _LABEL, do not matter.
_PASSWORD = re.compile(
    r"(?:(?i:passw(?:or)?d|passwort|passphrase|passcode|pswd|pwd|secret|credential|(?:api|access|private)[_.-]?key"
    r"|requirepass|(?:^|[_.-])(?:pass|pw))|[A-Z]PASS|[a-z]Pass)(?i:s?)\d*(?P<rest>[^a-z].*)?$"
)
_OTHER_NAME = re.compile(
    r"(?:(?i:token|jwt|bearer|cookie|session|salt|pass)|(?:^|[_.-])(?i:key|auth|pw|sig|otp|pin|dsn)|Key|Auth)s?\d*"
    r"(?P<rest>[^a-z].*)?$"
)
_LABEL = re.compile(
    r"(?i)(?:file|path|name|dir|folder|ur[li]|endpoint|field|label|help|text|type|prefix|suffix|len|length|size|min|max"
    r"|regex|pattern|format|policy|ids?|env|var|header|param|prompt|error|message|msg|template|column|class|changed|hash"
    r"|expir|valid|count|index|placeholder|enable|require|hint|title|desc|scope|ttl|timeout|algo?|kind|mode|state|location)"
)
_TEMPLATE = re.compile(
    r"[$#]?\{+[^{}]*\}+|^\$\w+$|\$\(\w+\)|%\(\w+\)[srd]|%[srd](?!\w)|^<.*>$|^\[.*\]$|^[*.x_#?-]+$|^\d+/.*"
    r"|^(?i:bearer|basic|token) "
)
_PROSE = re.compile(r"(?i)(?:^|\s)(?:the|your?|an?|is|to|of|for|must|not|enter|and|no|or|be|at|use|with|in)(?:\s|$)")
_PATH = re.compile(r"[.~]{0,2}/|.*://|[,;:)\] ]")
_CODE = re.compile(
    r".*(?:[(){}\[\],;]|:$)|[A-Z][A-Z0-9]*_[A-Z0-9_]+$"
    r"|(?:[a-z]*(?:int|float|utf|sha|md|base|str|arg|pass\w*|secret|token|key)|[a-z])\d+\w*$"
)
_WORDS = re.compile(r"[A-Za-z_][A-Za-z_.]*")
_NO_TOKEN = re.compile(r"[\s\\(){}\[\]<>,;]|^0x")
_KIND = re.compile(
    r"(?i)(?:yes|no|true|false|none|null|str(?:ing)?|func(?:tion)?|object|undefined|number|bool(?:ean)?)$"
)


def find_secrets(text: str, is_strict: bool = False) -> list[Span]:
    r"""Returns where secrets are, in order; no two of them touch. Lines end with \n.

    `is_strict`: a string that looks random is a secret, whatever its name.
    """
    spans = [Span(*match.span()) for match in _SHAPE.finditer(text)]
    spans += (Span(*match.span()) for match in _TOKEN.finditer(text) if looks_random(match[1], 0))
    tokens = (match for match in _ANY_TOKEN.finditer(text) if not match[0].startswith("sha"))  # checksums
    spans += (Span(*match.span()) for match in tokens if _is_token(match[1]))
    spans += (Span(*match.span()) for match in _KEY.finditer(text) if _is_key(match[0]))
    if is_strict:
        spans += (Span(*match.span(1)) for match in _STRING.finditer(text) if looks_random(match[1]))
    return _merge([*spans, *_find_values(text)])


def ends_in_secret(line: str) -> bool:
    """True if a line ends in what may become a secret while it is typed."""
    typed = _TYPED.search(line)
    return typed is not None and (typed[1] is None or looks_random(typed[1]))


def looks_random(text: str, min_changes: int = 2) -> bool:
    """True for characters that change their kind (letters of either case, digits) and have few pairs of words."""
    chars = "".join(filter(str.isalnum, text[:_MAX_READ_CHARS]))
    kinds = [char.isdigit() + 2 * char.isupper() for char in chars]
    if sum(one != other for one, other in pairwise(kinds)) < min_changes:
        return False
    pairs = list(map("".join, pairwise(chars.lower())))
    return sum(pair in _COMMON_PAIRS for pair in pairs) < _MAX_COMMON_SHARE * len(pairs)


def _is_secret(name: str, value: str, is_quoted: bool) -> bool:
    password = _PASSWORD.search(name)
    found = password or _OTHER_NAME.search(name)
    if found is None or _LABEL.search(found["rest"] or ""):
        return False
    bare = _TEMPLATE.sub("", value)
    if password is None or (not is_quoted and _CODE.match(bare)):
        return len(bare) >= 8 and not _NO_TOKEN.search(bare) and _is_token(bare)
    if (
        (bare != value and not any(map(str.isdigit, bare)))
        or len(bare) < 3
        or _keep_letters(bare) in _keep_letters(name)
        or _KIND.match(bare)
    ):
        return False
    if not is_quoted:
        return name.isupper() or not _WORDS.fullmatch(bare)
    return not _PROSE.search(bare) and (not _PATH.match(bare) or looks_random(bare))


def _is_token(text: str) -> bool:
    return looks_random(text) and (len(text) >= 20 or any(map(str.isdigit, text)))


def _keep_letters(text: str) -> str:
    return "".join(filter(str.isalpha, text)).lower() or "-"


def _is_key(text: str) -> bool:
    return looks_random(text) and any(map(str.islower, text)) and any(map(str.isupper, text))


def _find_values(text: str) -> Iterator[Span]:
    for name, is_quoted, place in _PLACES:
        for match in place.finditer(text):
            value = next(group for group in range(1 + (not name), match.re.groups + 1) if match[group] is not None)
            if _is_secret(name or match[1][-_MAX_READ_CHARS:], match[value][:_MAX_READ_CHARS], is_quoted):
                yield Span(*match.span(value))


def _merge(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(span for span in spans if span.start < span.end):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(span.end, merged[-1].end))
        else:
            merged.append(span)
    return merged
