"""The forms of secrets: those in one line, from detect-secrets, and private keys of several lines.

In a line, all detectors of detect-secrets are used but three. Those of high entropy also find hashes, identifiers and
test data, and that of IP addresses finds versions. In 1.2 million lines of Python packages, those used found 33 lines
with `user:password@` in an address, nearly all of them examples. That of keywords found 22 in 300,000 lines, most of
them names of constants. In the files that the benchmarks complete, none finds anything. The library asks services on
the network whether a secret is valid. That is not part of the methods used here.

A key block is a private key in PEM, OpenSSH, PGP or PuTTY form, of which detect-secrets finds only the first line. It
goes from the line that says BEGIN to the one that says END, if something between them looks like a key. Without an END,
as while it is typed, it goes on as long as the lines look like those of a key. So code between or after texts such as
"-----BEGIN PRIVATE KEY-----" is not part of a block.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any  # detect-secrets says nothing of its detectors' attributes


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """From a character to before another one."""

    start: int
    end: int


def merge(spans: Iterable[Span]) -> list[Span]:
    """Returns the spans in order, with those that overlap or touch as one, and without empty ones."""
    merged: list[Span] = []
    for span in sorted(span for span in spans if span.start < span.end):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(span.end, merged[-1].end))
        else:
            merged.append(span)
    return merged


# Those that know a secret by its form.
_BY_FORM = {
    "artifactory": "ArtifactoryDetector",
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "basic_auth": "BasicAuthDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "jwt": "JwtTokenDetector",
    "mailchimp": "MailchimpDetector",
    "npm": "NpmDetector",
    "openai": "OpenAIDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
# Those that know it by the name that it is assigned to. They are slow: in a line of 10,000 characters, they need
# milliseconds, and that of keywords some seconds in the worst case.
_BY_NAME = {
    "cloudant": "CloudantDetector",
    "ibm_cloud_iam": "IbmCloudIamDetector",
    "ibm_cos_hmac": "IbmCosHmacDetector",
    "softlayer": "SoftlayerDetector",
}
_MAX_NAMED_CHARS = 300  # longer lines are searched for forms only
# Some rules match only the beginning of a token, or as many characters of it as it had when the rule was written.
_REST_OF_TOKEN = re.compile(r"[\w+/=~.-]*", re.ASCII)
_BEFORE_SECRET, _AFTER_SECRET = "\"' \t:=", "\"' \t@"
_PIECE_CHARS, _STEP_CHARS = 2048, 1024  # a longer line is searched in pieces that overlap
_MAX_REMEMBERED_CHARS = 4_000_000


class LineScanner:
    """Finds secrets in lines, and remembers what it found. Slow to make: it imports detect-secrets."""

    def __init__(self) -> None:
        self._by_form = [_load(name, kind) for name, kind in _BY_FORM.items()]
        self._by_name = [_load(name, kind) for name, kind in _BY_NAME.items()]
        self._by_keyword = _load("keyword", "KeywordDetector")
        self._found: dict[str, tuple[Span, ...]] = {}
        self._num_remembered_chars = 0

    def find_spans(self, line: str) -> Sequence[Span]:
        """Returns where the secrets of a line are, in any order. They may overlap."""
        if len(line) <= _PIECE_CHARS:
            found = self._found.get(line)
            return self._find_in_piece(line) if found is None else found
        return [
            span for start in range(0, len(line) - _STEP_CHARS, _STEP_CHARS) for span in self._find_from(line, start)
        ]

    def _find_from(self, line: str, start: int) -> Iterator[Span]:
        for found in self._find_in_piece(line[start : start + _PIECE_CHARS]):
            yield Span(start + found.start, _find_token_end(line, start + found.end))

    def _find_in_piece(self, piece: str) -> tuple[Span, ...]:
        found = self._found.get(piece)
        if found is None:
            self._num_remembered_chars += len(piece)
            if self._num_remembered_chars > _MAX_REMEMBERED_CHARS:
                self._found.clear()
                self._num_remembered_chars = len(piece)
            spans = (Span(span.start, _find_token_end(piece, span.end)) for span in self._scan(piece))
            found = self._found[piece] = tuple(dict.fromkeys(spans))
        return found

    def _scan(self, piece: str) -> Iterator[Span]:
        yield from _find_by_rules(self._by_form, piece)
        if len(piece) <= _MAX_NAMED_CHARS:
            yield from _find_by_rules(self._by_name, piece)
            yield from _find_by_keyword(self._by_keyword, piece)


def _load(name: str, kind: str) -> Any:
    return getattr(import_module(f"detect_secrets.plugins.{name}"), kind)()


def _find_token_end(text: str, end: int) -> int:
    rest = _REST_OF_TOKEN.match(text, end)
    return end if rest is None else rest.end()


def _find_by_rules(detectors: Iterable[Any], text: str) -> Iterator[Span]:
    """Yields the whole token where a detector finds something, since its own answer may be the first letters only."""
    for detector in detectors:
        if any(True for _ in detector.analyze_string(text)):
            for rule in detector.denylist:
                for match in rule.finditer(text):
                    yield _trim(match)


def _trim(match: "re.Match[str]") -> Span:
    """Returns the match from its first group on, without the quotes, blanks and signs around the secret."""
    groups = [match.start(number) for number in range(1, match.re.groups + 1) if match.group(number)]
    start, end = min(groups, default=match.start()), match.end()
    text = match.string[start:end]
    return Span(end - len(text.lstrip(_BEFORE_SECRET)), start + len(text.rstrip(_AFTER_SECRET)))


def _find_by_keyword(detector: Any, line: str) -> Iterator[Span]:
    """Yields the values that are assigned to names such as `password`."""
    for value in detector.analyze_string(line):
        at = line.find(value)
        while at >= 0:
            yield Span(at, at + len(value))
            at = line.find(value, at + len(value))


_BEGIN = re.compile(r"(?:-{2,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?|PuTTY-User-Key-File-\d)")
_END = re.compile(r"-{2,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?[ -]*-?|Private-MAC: *[0-9a-fA-F]+")
_HINTS = ("PRIVATE KEY", "PuTTY-User-Key-File-")
_ESCAPED_END = re.compile(r"\\[nr]")
# What stands around the lines of a key in source text: quotes, comment signs, continuations.
_AROUND = " \t\r\"'`+\\,()#/*;|>frb"
_LONG_RUN = re.compile(r"[A-Za-z0-9+/]{32}")
_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{16,}|[A-Za-z0-9+/]*=+|[A-Z][A-Za-z-]*: ?.*")
MAX_BLOCK_LINES = 400  # a key of 16,384 bits has some 200


def find_blocks(text: str) -> Iterator[Span]:
    r"""Yields where the key blocks of a text are. Its lines end with \n."""
    if not any(hint in text for hint in _HINTS):
        return
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        at = _find_end(text, begin)
        yield Span(begin.start(), at)


def begins_block(line: str) -> bool:
    """True for the first line of a block."""
    return (_HINTS[0] in line or _HINTS[1] in line) and _BEGIN.search(line) is not None


def _find_end(text: str, begin: "re.Match[str]") -> int:
    line_end = _find_line_end(text, begin.end())
    limit = line_end
    for _ in range(MAX_BLOCK_LINES):
        limit = _find_line_end(text, limit + 1)
    end = _END.search(text, begin.end(), limit)
    if end is not None and (end.start() < line_end or _LONG_RUN.search(text, line_end, end.start())):
        return end.end()
    return _find_end_of_material(text, line_end, limit)


def _find_end_of_material(text: str, line_end: int, limit: int) -> int:
    end_of_material = line_end
    while line_end < limit:
        start, line_end = line_end + 1, _find_line_end(text, line_end + 1)
        bare = _ESCAPED_END.sub("", text[start:line_end]).strip(_AROUND)
        if bare and not _MATERIAL.fullmatch(bare):
            break
        end_of_material = line_end if bare else end_of_material
    return end_of_material


def _find_line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end
