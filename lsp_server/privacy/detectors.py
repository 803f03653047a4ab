"""The known forms of secrets in one line: the rules of detect-secrets.

All of its detectors are used but three. Those of high entropy also find hashes, identifiers and test data, and that of
IP addresses finds versions. In 1.2 million lines of Python packages, those used found 33 lines with `user:password@` in
an address, nearly all of them examples. That of keywords found 22 in 300,000 lines, most of them names of constants. In
the files that the benchmarks complete, none finds anything.

The library asks services on the network whether a secret is valid. That is not part of the methods used here.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any  # detect-secrets says nothing of its detectors' attributes

from lsp_server.privacy.spans import Span

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
