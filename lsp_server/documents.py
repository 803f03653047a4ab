"""The text of the open documents, kept in step with the editor edit by edit.

pygls has such a mirror too. It is not used: it splits lines at form feeds and U+2028 as Python does, and an edit in
a very long line takes it seconds.
"""

import io
import logging
from collections.abc import Sequence

from lsprotocol.types import (
    Position,
    PositionEncodingKind,
    Range,
    TextDocumentContentChangePartial,
    TextDocumentContentChangeWholeDocument,
    TextDocumentItem,
)

from lsp_server.errors import OutOfStepError, UnknownDocumentError
from lsp_server.positions import join_surrogates, split_line

Change = TextDocumentContentChangePartial | TextDocumentContentChangeWholeDocument

_log = logging.getLogger(__name__)


class Document:
    """One open document: its lines as the editor has them, each with its own line end.

    `"".join(document.lines)` is the text. The last line has no line end and may be empty, so there is always at least
    one line.
    """

    __slots__ = ("_encoding", "_lines", "_problem", "anchor_line", "language_id", "uri", "version")

    def __init__(self, item: TextDocumentItem, encoding: PositionEncodingKind) -> None:
        self.uri = item.uri
        self.language_id = item.language_id
        self.version = item.version
        # The line at which the context window starts (lsp_server.context). Edits above it change its number, so that
        # it stays the same line of the text.
        self.anchor_line = 0
        self._encoding = encoding
        self._lines = split_lines(item.text)
        self._problem: str | None = None  # why the text is unknown

    @property
    def lines(self) -> Sequence[str]:
        """The lines with their line ends. Raises OutOfStepError."""
        self._check_in_step()
        return self._lines

    @property
    def text(self) -> str:
        """The whole text; for tests and small documents. Raises OutOfStepError."""
        return "".join(self.lines)

    def apply(self, version: int, changes: Sequence[Change]) -> None:
        """Applies the edits of one notification, each to the text that results from the edit before it.

        A version older than the current one is ignored: its edits were made to a text that is gone. An equal one is
        applied: Neovim counts an undo of several edits as one version. Raises OutOfStepError for edits that cannot be
        applied; the text is then unknown until a change brings all of it.
        """
        if version < self.version:
            _log.warning("ignored edits of version %d: the current version is %d", version, self.version)
            return
        self.version = version
        for change in changes:
            if isinstance(change, TextDocumentContentChangeWholeDocument):
                self._lines = split_lines(change.text)
                self.anchor_line = min(self.anchor_line, len(self._lines) - 1)
                self._problem = None
            else:
                self._check_in_step()
                self._replace(change.range, change.text)

    def split_at(self, position: Position) -> tuple[int, str, str]:
        """The line number, and the line's text before and after `position`. Raises OutOfStepError.

        A position after the text's end means its end.
        """
        self._check_in_step()
        if position.line >= len(self._lines):
            return len(self._lines) - 1, self._lines[-1], ""
        before, after = split_line(self._lines[position.line], position.character, self._encoding)
        return position.line, before, after

    def _replace(self, span: Range, text: str) -> None:
        if (span.start.line, span.start.character) > (span.end.line, span.end.character):
            self._problem = (
                f"the editor sent an edit that ends before it starts ({span}, version {self.version}); "
                "there are no suggestions for this document until it is opened again"
            )
            raise OutOfStepError(self._problem)
        first, before, _ = self.split_at(span.start)
        last, _, after = self.split_at(span.end)
        if first > 0 and not before and self._lines[first - 1].endswith("\r"):
            first -= 1  # what follows may begin with \n: the two are then one line end
            before = self._lines[first]
        lines = _splice(before, text, after)
        if last < len(self._lines) - 1 and len(lines) > 1 and not lines[-1]:
            lines.pop()  # `after` ends with a line end, and the document has the line after it already
        self._lines[first : last + 1] = lines
        self._move_anchor(first, last, len(lines))

    def _move_anchor(self, first: int, last: int, num_new: int) -> None:
        if self.anchor_line > last:
            self.anchor_line += num_new - (last + 1 - first)
        elif self.anchor_line > first:
            self.anchor_line = first

    def _check_in_step(self) -> None:
        if self._problem is not None:
            raise OutOfStepError(self._problem)


class Documents:
    """The open documents by their addresses."""

    def __init__(self, encoding: PositionEncodingKind) -> None:
        self.encoding = encoding
        self._documents: dict[str, Document] = {}

    def open(self, item: TextDocumentItem) -> Document:
        """Adds a document with its whole text, in place of one with the same address."""
        document = self._documents[item.uri] = Document(item, self.encoding)
        return document

    def get(self, uri: str) -> Document:
        """The open document. Raises UnknownDocumentError."""
        try:
            return self._documents[uri]
        except KeyError:
            raise UnknownDocumentError("the editor refers to a document that is not open") from None

    def close(self, uri: str) -> None:
        """Forgets a document; one that is not open is no error."""
        self._documents.pop(uri, None)


def split_lines(text: str) -> list[str]:
    r"""The lines of `text`, each with its \n, \r\n or \r; the last has none and may be empty.

    No other character ends a line (LSP, Text Documents), so `str.splitlines` cannot be used.
    """
    if not _has_line_end(text):
        return [text]
    lines = io.StringIO(text, newline="").readlines()
    if lines[-1].endswith(("\n", "\r")):
        lines.append("")
    return lines


def _splice(before: str, text: str, after: str) -> list[str]:
    joined = before + text + after
    if _may_join(before, text) or _may_join(text, after) or _may_join(before, after):
        joined = join_surrogates(joined)
    if _has_line_end(before) or _has_line_end(text):
        return split_lines(joined)
    return [joined]  # without a search, since it may be a line of megabytes


def _has_line_end(text: str) -> bool:
    return "\n" in text or "\r" in text


def _may_join(left: str, right: str) -> bool:
    """True where `left` ends with the first half of a surrogate pair and `right` begins with the second."""
    return "\ud800" <= left[-1:] <= "\udbff" and "\udc00" <= right[:1] <= "\udfff"
