"""The known forms of secrets in one line: the rules of detect-secrets.

All of its detectors are used but three. Those of high entropy also find hashes, identifiers and test data, and that of
IP addresses finds versions. In 1.2 million lines of Python packages, the others found 33 lines with `user:password@` in
an address (most of them examples) and the keyword detector some 90, half of them names of constants; in the held-out
files none.

The library asks services on the network whether a secret is valid. That is not part of the methods used here.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any  # detect-secrets says nothing of its detectors' attributes

from lsp_server.privacy.spans import Span

_DETECTORS = {
    "artifactory": "ArtifactoryDetector",
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "basic_auth": "BasicAuthDetector",
    "cloudant": "CloudantDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "ibm_cloud_iam": "IbmCloudIamDetector",
    "ibm_cos_hmac": "IbmCosHmacDetector",
    "jwt": "JwtTokenDetector",
    "mailchimp": "MailchimpDetector",
    "npm": "NpmDetector",
    "openai": "OpenAIDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "softlayer": "SoftlayerDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
# Some rules match only the beginning of a token, or as many characters of it as it had when the rule was written.
_REST_OF_TOKEN = re.compile(r"[\w+/=~.-]*", re.ASCII)
_BEFORE_SECRET, _AFTER_SECRET = "\"' \t:=", "\"' \t@"
_MAX_KEYWORD_CHARS = 300  # the keyword detector needs seconds for some lines of 10,000
_PIECE_CHARS, _STEP_CHARS = 2048, 1024  # longer lines are searched in overlapping pieces, for the same reason
_MAX_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class _Detectors:
    by_rules: tuple[Any, ...]  # RegexBasedDetector
    by_keyword: Any  # KeywordDetector


class LineScanner:
    """Finds secrets in lines, and remembers what it found. Slow to make: it imports detect-secrets."""

    def __init__(self) -> None:
        modules = {name: import_module(f"detect_secrets.plugins.{name}") for name in (*_DETECTORS, "keyword")}
        by_rules = tuple(getattr(modules[name], kind)() for name, kind in _DETECTORS.items())
        self._detectors = _Detectors(by_rules, modules["keyword"].KeywordDetector())
        self._found: dict[str, tuple[Span, ...]] = {}

    def find_spans(self, line: str) -> tuple[Span, ...]:
        """Returns where the secrets of a line are, in any order. They may overlap."""
        found = self._found.get(line)
        if found is None:
            if len(self._found) >= _MAX_REMEMBERED:
                self._found.clear()
            found = self._found[line] = tuple(dict.fromkeys(self._scan(line)))
        return found

    def _scan(self, line: str) -> Iterator[Span]:
        if len(line) <= _MAX_KEYWORD_CHARS:
            yield from _find_by_keyword(self._detectors.by_keyword, line)
        for start in range(0, max(1, len(line) - _STEP_CHARS), _STEP_CHARS):
            for found in _find_by_rules(self._detectors.by_rules, line[start : start + _PIECE_CHARS]):
                end = _REST_OF_TOKEN.match(line, start + found.end)
                yield Span(start + found.start, start + found.end if end is None else end.end())


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
