"""Replaces secrets in text that is sent. The same text becomes the same text each time."""

from lsp_server.privacy import key_blocks
from lsp_server.privacy.detectors import LineScanner
from lsp_server.privacy.spans import Span, merge

PLACEHOLDER = "REDACTED"  # the same for all secrets: it says nothing of their length or content


class Redactor:
    """Replaces secrets. Slow to make; then a line costs tens of microseconds the first time, and then less than one."""

    def __init__(self) -> None:
        self._scanner = LineScanner()

    def redact(self, text: str) -> str:
        r"""Returns a text with its secrets replaced. A block of several lines becomes one word.

        Pass whole documents or whole lines: the half of a secret is not recognised. Lines end with \n.
        """
        return replace_spans(text, self.find_spans(text))

    def find_spans(self, text: str) -> list[Span]:
        """Returns where the secrets are, in order. No two of them touch."""
        spans = list(key_blocks.find_blocks(text))
        at = 0
        for line in text.split("\n"):
            if found := self._scanner.find_spans(line):
                spans += [Span(at + span.start, at + span.end) for span in found]
            at += len(line) + 1
        return merge(spans)


def replace_spans(text: str, spans: list[Span]) -> str:
    """Returns the text with each span replaced by the placeholder."""
    if not spans:
        return text
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], PLACEHOLDER]
        at = span.end
    return "".join([*parts, text[at:]])
