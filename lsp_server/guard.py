"""The gate that each request passes as it is sent: nothing of excluded documents, no secrets, and no names.

Only `midtoken.connection` has a client of the completion server, as an import contract says, and it sends nothing but
a `Cleared` request. `Guard.clear` is the last step: nothing can be added to what it returns.

Secrets are looked for in text that may reach another machine: tokens, private keys, and values of names. The
expressions are RE2's: their time is linear in the length of the text, whatever it says. So a text is read as a whole
for each key, and nothing is remembered.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Generic, TypeVar, final

import re2

from inference.protocol.completion import CompletionRequest, RelatedFile
from lsp_server.context import Context
from lsp_server.errors import ExcludedError, InSecretError
from lsp_server.exclusion import Exclusions, Policy
from lsp_server.settings import Settings

if TYPE_CHECKING:  # it imports NumPy, and the language server does not
    from inference.protocol.characters import CharacterRequest

_Request = TypeVar("_Request", CompletionRequest, "CharacterRequest")


class _GuardOnly:
    """An argument that no other module has, so that only `Guard.clear` can build a `Cleared` request."""


@final
class Cleared(Generic[_Request]):
    """A request that may be sent as it is. It is no dataclass: `dataclasses.replace` would change what was cleared."""

    __slots__ = ("_value",)

    def __init__(self, value: _Request, _key: _GuardOnly) -> None:
        self._value: _Request = value

    @property
    def value(self) -> _Request:
        """The request."""
        return self._value


class Guard:
    """Applies the settings `exclude` and `redactSecrets` to each request."""

    def __init__(self, policy: Policy | None = None, is_remote: bool = False) -> None:
        """`policy`: None for text of no file. `is_remote`: text may go to another machine, so it is without secrets."""
        self.exclusions = Exclusions(policy or Policy({}))
        self._is_remote = self._redacts = is_remote
        self._key = os.urandom(16)

    def configure(self, settings: Settings, folder_uris: Sequence[str], refusal: str | None = None) -> None:
        """Sets the settings and the URIs of the workspace's folders. Before that, nothing of a file may be sent.

        `refusal`: why the settings say nothing that can be relied on, so that nothing may be sent.
        """
        self._redacts = self._is_remote and settings.redact_secrets
        self.exclusions.configure(settings.exclude, folder_uris, refusal)

    def redact_parts(self, parts: Sequence[str]) -> list[str]:
        """Returns the parts of one text as requests may have them. A secret may begin in one and end in another.

        `clear` looks for secrets again, last.
        """
        return redact_parts(parts) if self._redacts else [*parts]

    def redact_context(self, context: Context) -> Context:
        """Returns the text around a cursor as a request may have it. Raises InSecretError if the cursor is in one."""
        return redact_context(context) if self._redacts else context

    def clear(self, request: _Request, uris: Iterable[str]) -> Cleared[_Request]:
        """Returns the request as it may be sent: without secrets, and with random names in place of its own.

        `uris`: of all files whose text is in it. Raises ExcludedError; InSecretError if its cursor is in a secret.
        """
        for uri in uris:
            if (exclusion := self.exclusions.find_exclusion(uri)) is not None:
                raise ExcludedError(exclusion, uri)
        cleared = self._remove_secrets(request) if self._redacts else request
        if isinstance(cleared, CompletionRequest):
            cleared = replace(cleared, document=self._hide(cleared.document))
        return Cleared(replace(cleared, tenant=self._hide(cleared.tenant)), _GuardOnly())

    def _remove_secrets(self, request: _Request) -> _Request:
        if isinstance(request, CompletionRequest):
            prefix, suffix = redact_parts([request.prefix, request.suffix], cursor=1)
            related = tuple(RelatedFile(*map(redact, (each.path, each.text))) for each in request.related)
            stop = list_harmless_stops(request.stop, request.prefix + request.suffix)
            path = redact(request.path)
            return replace(request, prefix=prefix, suffix=suffix, related=related, stop=stop, path=path)
        parts = [os.fsdecode(request.context), os.fsdecode(request.text)]
        has_cursor = request.ask not in ("surprisal", "probability")
        context, text = map(os.fsencode, redact_parts(parts, cursor=2 if has_cursor else None))
        return replace(request, context=context, text=text)

    def _hide(self, name: str) -> str:
        """The same name becomes the same digest while this process runs, and nobody can find it by guessing.

        So a server cannot link the names of two users, and shares nothing that it has cached between them. No other
        part of a client hides names.
        """
        return name and blake2b(name.encode(), key=self._key, digest_size=16).hexdigest()


PLACEHOLDER = "REDACTED"  # the same for all secrets: it says nothing of their length or content

# Tokens. Those of most services are a short word, `_` or `-`, perhaps some more, and letters and digits without a sign.
_TOKEN = re2.compile(
    r"(?:\b|_)(?:[A-Za-z][A-Za-z0-9]{1,11}[_-](?:[A-Za-z0-9]{1,10}[_-]){0,3}[A-Za-z0-9]{20,}"
    r"|A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16,}|ABSK[\w+/=]{60,}|LTAI[A-Za-z0-9]{16,}"  # AWS, Alibaba
    r"|(?:ATATT|ATCTT|ATBB|BBDC-)[\w+/=-]{24,}|AKCp\w{40,}|dapi[0-9a-f]{32,}"  # Atlassian, JFrog, Databricks
    r"|(?:AccountKey|SharedAccessKey|SharedAccessSignature)=[\w+/=%&-]{20,}"  # Azure
    r"|(?:[MNO][\w-]{22,26}\.[\w-]{6}\.|SG\.[\w-]{20,}\.|[st]k\.eyJ[\w-]{20,}\.)[\w-]{20,}"  # Discord, SendGrid, Mapbox
    r"|(?:dp|dt0[a-z]\d\d|hv[bsr])\.[\w.-]{24,}|\w{14}\.atlasv1\.[\w-]{40,}"  # Doppler, Dynatrace, HashiCorp
    r"|AIza[\w-]{30,}|ya29\.[\w-]{30,}|GOCSPX-[\w-]{20,}|1//0[\w-]{30,}|EAA[A-Z]\w{60,}"  # Google, Facebook
    r"|(?:sk-|gl[a-z]{2,5}-|GR1348941|github_pat_|pypi-|nvapi-|xox[a-z][.-]|xapp-|tskey-|sq0[a-z]{3}-)[\w.-]{20,}"
    r"|(?:figd|hcaik|ntn|pscale_[a-z]+|sb_secret|sbp|sntry[su]|whsec)_[\w+/=-]{24,}"
    r"|[0-9a-f]{32}-us\d{1,2}|\d{8,10}:[\w-]{33,}|(?:SK|AC)[0-9a-f]{32}"  # Mailchimp, Telegram, Twilio
    r"|eyJ[\w-]{12,}\.[\w-]{8,}(?:\.[\w-]*)*|LS0tLS1CRUdJTi[\w+/=]{30,}"  # web tokens, keys in base64
    r"|(?:hooks\.slack\.com/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/)[\w/@+-]{36,})[\w-]*"
)

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

# `name = "value"`, where the name ends as that of a secret does. A value that is not closed is one, too.
_PASSWORD = r"(?:passw(?:or)?ds?|passphrases?|pwd|secrets?)"
_OTHER = r"(?:(?:api|access|private|secret|account|auth|signing|encryption)[_-]?keys?|tokens?|credentials?)"
_OPENING = r"[bfruBFRU]{0,2}\\?[\"'`]{1,3}([^\s\"'`\\{}<>]{4,})(?:[\"'`\\]|$)"
_NEXT = rf"[\"']?\]?\s*(?::[ \t]*[A-Za-z][\w\[\]., |]{{0,40}}=|:=|=>|={{1,2}}|:)\s*[\[(]?\s*{_OPENING}"
_PASSWORDS = (
    re2.compile(f"(?im){_PASSWORD}{_NEXT}"),
    re2.compile(r"://[^\s/:@\"'`]*:([^\s/@\"'`{}$<%]{3,})@"),
)
_OTHERS = (  # these values have a digit
    # After other signs, as in `getenv("DB_PASSWORD", "…")`.
    re2.compile(rf"(?im)(?:{_PASSWORD}|{_OTHER})[\"')\]]*[ \t]*(?:[=:,(][^\"'`\n;{{}}.]{{0,40}})?[=:,(]\s*{_OPENING}"),
    # Without quotes: up to the end of the line, or without a blank before it.
    re2.compile(
        rf"(?im)(?:{_PASSWORD}|{_OTHER})(?:[ \t]*[:=][ \t]*([^\s\"'`(){{}}\[\],;&$<>]{{6,}})[ \t]*(?:$|\#)"
        r"|=([^\s\"'`(){}\[\],;&$<>]{6,}))"
    ),
    re2.compile(r"(?i)\b(?:bearer|basic|token)[ \t]+([\w+/=.~-]{12,})"),
)
_SAYS_NAME = re.compile(rf"{_PASSWORD}|token|your|example|none|null|true|false|^%\(", re.IGNORECASE)  # not in a value
_BLANK = re.compile("[\ud800-\udfff\u00a0\ufeff]")  # surrogates, and what looks like a blank
Span = tuple[int, int]  # from a character to before another one


def find_secrets(text: str) -> list[Span]:
    """Returns where secrets are, in order. No two of them touch. What was replaced is no secret."""
    text = _BLANK.sub(" ", text.replace("\r\n", " \n").replace("\r", "\n"))  # of the same length
    spans = [match.span() for match in _TOKEN.finditer(text) if _has_digit(match[0]) and match[0][:3] != "sha"]
    spans += [match.span() for match in _KEY.finditer(text) if _has_digit(match[0]) and not match[0].isupper()]
    for form in (*_PASSWORDS, *_OTHERS):
        for match in form.finditer(text):
            group = match.lastindex
            if _is_value(match[group], form in _PASSWORDS):
                spans.append(match.span(group))
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _is_value(text: str, is_password: bool) -> bool:
    """False for the name of something, and for what stands for a value, such as `********`."""
    if text == PLACEHOLDER or _SAYS_NAME.search(text) or not any(map(str.isalnum, text)):
        return False
    return (is_password and len(text) >= 8) or (len(text) >= (4 if is_password else 6) and _has_digit(text))


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def redact(text: str) -> str:
    """Returns a text with its secrets replaced. A block of several lines becomes one word.

    Pass whole documents or whole lines: the half of a secret is not recognised.
    """
    return redact_parts([text])[0]


def redact_parts(parts: Sequence[str], cursor: int | None = None) -> list[str]:
    """Returns the parts of one text with its secrets replaced, also those that two parts share.

    `cursor`: the number of the part that begins at the cursor. Raises InSecretError if the cursor is in a secret or at
    its edge.
    """
    text, edges = "".join(parts), [*accumulate(map(len, parts), initial=0)]
    spans = find_secrets(text)
    if cursor is not None and any(start <= edges[cursor] <= end for start, end in spans):
        raise InSecretError
    return [_replace(text, spans, start, end) for start, end in pairwise(edges)]


def redact_context(context: Context) -> Context:
    """Returns the text around a cursor without secrets. Raises InSecretError."""
    parts = context.head, context.prefix, context.suffix, context.tail
    _, prefix, suffix, _ = redact_parts(parts, cursor=2)
    return Context(prefix, suffix)


def list_harmless_stops(stops: Sequence[str], prompt: str) -> tuple[str, ...]:
    """Returns the stop strings that say nothing of the secrets of the prompt, and have none of their own.

    The model sees neither, so it does not write the others.
    """
    spans = find_secrets(prompt)
    shown, secrets = _replace(prompt, spans, 0, len(prompt)), [prompt[start:end] for start, end in spans]
    return tuple(
        stop
        for stop in stops
        if (stop in shown or stop not in prompt)
        and not find_secrets(stop)
        and not any(secret in stop for secret in secrets)
    )


def _replace(text: str, spans: Sequence[Span], start: int, end: int) -> str:
    """Returns a part of the text, with the placeholder for what it has of each span."""
    parts = []
    for first, last in spans:
        if first < end and last > start:
            parts += [text[start : max(start, first)], PLACEHOLDER]
            start = min(end, last)
    return "".join([*parts, text[start:end]])
