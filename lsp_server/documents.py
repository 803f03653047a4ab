"""The text of the open documents. Each edit of the editor is applied, so that it stays in sync.

pygls also keeps the text, but that copy is not used: it splits lines at form feeds and U+2028 as Python does, and takes
seconds for an edit in a very long line.
"""

import copy
import enum
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from lsprotocol.types import (
    NotebookCell,
    NotebookCellKind,
    Position,
    Range,
    TextDocumentContentChangePartial,
    TextDocumentContentChangeWholeDocument,
    TextDocumentItem,
)

from lsp_server.errors import EditorError, LineEndsError, OutOfSyncError, TooLargeError
from lsp_server.languages import find_language

ContentChange = TextDocumentContentChangePartial | TextDocumentContentChangeWholeDocument

MAX_CHARS = 10_000_000  # of a document with suggestions


class LineEnds(enum.Enum):
    """The rule by which an editor counts lines."""

    LSP = enum.auto()  # each of the three (Text Documents)
    LF = enum.auto()  # only \n, or only \r in a text without \n; what stands before a \n is text
    UNKNOWN = enum.auto()  # one of both, so a text where they differ cannot be followed


# Their names in `clientInfo`. VS Code, JetBrains, Zed and Sublime Text give all lines of a text the same end.
_LF_CLIENTS = re.compile(r"vim|helix|emacs|eglot|kak|ycmd|^ale$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Client:
    r"""What an editor does otherwise than LSP, or its own capabilities, say."""

    line_ends: LineEnds = LineEnds.LSP
    inserts_lf: bool = False  # it splits the text of items at \n, and would draw and insert each \r as ^M
    reads_markdown: bool = False  # it takes all text for that

    @classmethod
    def from_name(cls, name: str) -> Self:
        """Returns what is known of the editor with this name, which may be empty."""
        line_ends = LineEnds.LF if _LF_CLIENTS.search(name) else LineEnds.UNKNOWN
        return cls(line_ends, inserts_lf=name == "Neovim", reads_markdown=name == "helix")


def split_lines(text: str, line_ends: LineEnds = LineEnds.LSP) -> list[str]:
    """Returns the lines of `text`, each with its line end. The last line has no line end and may be empty.

    `str.splitlines` cannot be used, because it splits at other characters, too.
    """
    if "\n" not in text and "\r" not in text:
        return [text]
    lines = io.StringIO(text, newline="\n" if line_ends is LineEnds.LF else "").readlines()
    if lines[-1].endswith("\n") or (line_ends is not LineEnds.LF and lines[-1].endswith("\r")):
        lines.append("")
    return lines


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the text of a document, and how its editor writes what is inserted there."""

    position: Position
    line_end: str = "\n"


@dataclass(frozen=True, slots=True)
class Edit:
    """The last edit of a document: what was inserted, and the line and the text of that line before its end."""

    text: str
    line: int
    before: str


@dataclass(slots=True)
class Notebook:
    """A notebook in the editor. Each of its cells is a document."""

    uri: str
    cells: list[NotebookCell]  # in their order; `document` is the URI of each
    documents: dict[str, "Document"] = field(default_factory=dict)  # by URI

    def list_lines_above(self, document: "Document") -> list[str]:
        """Returns the code of the cells before a cell that are in its language, with a blank line after each."""
        uris = [cell.document for cell in self.cells if cell.kind is NotebookCellKind.Code]
        before = uris[: uris.index(document.uri)] if document.uri in uris else []
        cells = [self.documents[uri] for uri in before if uri in self.documents]
        usable = [cell for cell in cells if cell.language == document.language and cell.problem is None]
        texts = ("".join(cell.lines).rstrip() for cell in usable)
        return [line for text in texts if text for line in split_lines(text + "\n\n")[:-1]]


class Document:
    """One open document: its lines as the editor has them, each with its own line end.

    `"".join(document.lines)` is the text. The last line has no line end and may be empty, so there is always at least
    one line.
    """

    def __init__(
        self,
        item: TextDocumentItem,
        notebook: Notebook | None = None,
        client: Client = Client(),
    ) -> None:
        """`notebook`: the one that has it as a cell."""
        self.uri = item.uri
        self.notebook = notebook
        if notebook is not None:
            notebook.documents[item.uri] = self
        self.file_uri = item.uri if notebook is None else notebook.uri  # of the file whose rules apply
        self.language_id = item.language_id
        self.language = find_language(item.language_id)
        # The number of the line at which the sent prefix starts (lsp_server.context), counted with those of the cells
        # above. Edits above the line change the number, so that it stays the same line of the text.
        self.anchor_line = 0
        # The last one of a notification; None before the first edit, and after one of the whole text.
        self.last_edit: Edit | None = None
        self._client, self._line_ends = client, client.line_ends
        self._lines: list[str] = [""]
        self._num_lone_cr = 0  # lines that end with it
        self.num_chars = 0  # the length of the text
        self.num_edits = 0  # grows with each notification of an edit
        self.problem: EditorError | None = None  # why the text is not known; None if it is
        self._replace_all(item.text)

    @property
    def lines(self) -> Sequence[str]:
        """The lines with their line ends. Raises EditorError: `problem`."""
        if self.problem is not None:
            raise self.problem
        return self._lines

    def apply(self, changes: Sequence[ContentChange]) -> None:
        """Applies the edits of one notification in order, each to the result of the one before.

        Raises OutOfSyncError for the first edit that cannot be applied; the next ones are ignored until a change
        contains the whole text.
        """
        self.last_edit = None
        self.num_edits += 1
        for change in changes:
            if isinstance(change, TextDocumentContentChangeWholeDocument):
                self._replace_all(change.text)
            elif self.problem is None:
                self._replace(change.range, change.text)

    def with_edit(self, span: Range, text: str) -> tuple["Document", Position]:
        """Returns a copy in which `text` has replaced `span`, and the place after it. Raises like `lines`."""
        other: Document = copy.copy(self)
        other._lines = list(self.lines)
        other._replace(span, text)
        return other, other.find_edit_end() or span.end

    def find_edit_end(self) -> Position | None:
        """Returns where the last edit ended; None if that is not known."""
        edit = self.last_edit
        return None if edit is None else Position(edit.line, num_units(edit.before))

    def lose_sync(self, why: str) -> OutOfSyncError:
        """Makes the text unknown until a change contains all of it. Returns the error that says so."""
        until = "until the editor sends its whole text"
        self.problem = error = OutOfSyncError(f"{why}; there are no suggestions for this document {until}")
        return error

    def split_at(self, position: Position) -> tuple[int, str, str]:
        """Returns the line number, and the line's text before and after `position`. Raises like `lines`.

        A position after the end of the text means the end of the text.
        """
        # In an editor that counts \n, a text without one has one line.
        if position.line >= len(self.lines) == 1 and "\r" in self._lines[0]:
            self._line_ends = LineEnds.LSP
            self._lines = split_lines(self._lines[0])
        if position.line >= len(self._lines):
            return len(self._lines) - 1, self._lines[-1], ""
        keeps_cr = self._line_ends is LineEnds.LF
        before, after = split_line(self._lines[position.line], position.character, keeps_cr)
        return position.line, before, after

    @property
    def lines_above(self) -> Sequence[str]:
        """The lines of the notebook's cells before it, which are context, too."""
        return () if self.notebook is None else self.notebook.list_lines_above(self)

    def split_with_above(self, position: Position) -> tuple[Sequence[str], int, str, str]:
        """Does the same as `split_at`, with the lines of the cells above included and counted. Raises like `lines`."""
        number, before, after = self.split_at(position)
        above = self.lines_above
        return [*above, *self._lines] if above else self._lines, len(above) + number, before, after

    def find_place(self, position: Position) -> Place:
        """Returns the place in the text that `position` means, which may lie outside it. Raises like `lines`.

        It is never inside a code point. Its line end is the line's own, or, for the last line, that of the line above,
        unless the editor inserts another one.
        """
        number, before, after = self.split_at(position)
        if _may_join(before, after):
            before = before[:-1]
        found = Position(number, num_units(before))
        with_end = max(0, min(number, len(self._lines) - 2))  # the last line has no line end
        line_end = self._lines[with_end][len(self._lines[with_end].rstrip("\r\n")) :]
        return Place(found, "\n" if self._client.inserts_lf else line_end or "\n")

    def was_edited_at(self, position: Position) -> bool:
        """True if the last edit ended at `position`, or if it is not known where it ended. Raises like `lines`."""
        if self.last_edit is None:
            return self.num_edits > 0
        number, before, _ = self.split_at(position)
        return (self.last_edit.line, self.last_edit.before) == (number, before)

    def _replace(self, span: Range, text: str) -> None:
        if (span.start.line, span.start.character) > (span.end.line, span.end.character):
            raise self.lose_sync(f"the editor sent an edit that ends before it starts ({span})")
        last, _, after = self.split_at(span.end)
        first, before, _ = self.split_at(span.start)
        if first > 0 and not before and self._lines[first - 1].endswith("\r"):
            first -= 1  # the new text may begin with \n, which joins the \r to one line end
            before = self._lines[first]
        removed = self._lines[first : last + 1]
        lines = self._splice(before, text, after)
        self.num_chars += sum(map(len, lines)) - sum(map(len, removed))
        if last < len(self._lines) - 1 and len(lines) > 1 and not lines[-1]:
            lines.pop()  # `after` has a line end, and the line that follows it is in the document already
        self._lines[first : last + 1] = lines
        self._num_lone_cr += _count_lone_cr(lines) - _count_lone_cr(removed)
        self._move_anchor(first, last, len(lines))
        end = first + len(lines) - 1
        self.last_edit = Edit(text, end, lines[-1][: len(lines[-1]) - len(after)] if lines else "")
        self._check_text()

    def _splice(self, before: str, text: str, after: str) -> list[str]:
        joined = before + text + after
        if _may_join(before, text) or _may_join(text, after) or _may_join(before, after):
            joined = join_surrogates(joined)
        if any(end in before or end in text for end in "\r\n"):
            return split_lines(joined, self._line_ends)
        return [joined]  # without searching it for line ends, since it may be a line of megabytes

    def _replace_all(self, text: str) -> None:
        self._line_ends = self._client.line_ends
        self._lines = split_lines(text, self._line_ends) if len(text) <= MAX_CHARS else [""]
        self._num_lone_cr = _count_lone_cr(self._lines)
        self.num_chars = len(text)
        self.problem = None
        self.anchor_line = min(self.anchor_line, len(self.lines_above) + len(self._lines) - 1)
        self._check_text()

    def _check_text(self) -> None:
        if self.num_chars > MAX_CHARS:
            self.problem = TooLargeError(
                f"the document has more than {MAX_CHARS // 1_000_000} million characters, so it gets no suggestions"
            )
            self._lines, self.anchor_line, self.last_edit = [""], 0, None
        elif self._line_ends is LineEnds.UNKNOWN and 0 < self._num_lone_cr < len(self._lines) - 1:
            self.problem = LineEndsError(
                "the document has a carriage return that may end a line or be a character of it, which this editor "
                "does not say, so there are no suggestions until the document is opened without it"
            )

    def _move_anchor(self, first: int, last: int, num_new: int) -> None:
        num_above = len(self.lines_above)
        if self.anchor_line > num_above + last:
            self.anchor_line += num_new - (last + 1 - first)
        elif self.anchor_line > num_above + first:
            self.anchor_line = num_above + first


def _count_lone_cr(lines: Sequence[str]) -> int:
    return sum(line.endswith("\r") for line in lines)


def _may_join(left: str, right: str) -> bool:
    """True where `left` ends with the first half of a surrogate pair and `right` begins with the second."""
    return "\ud800" <= left[-1:] <= "\udbff" and "\udc00" <= right[:1] <= "\udfff"


def num_units(text: str) -> int:
    """Returns the length of `text` in UTF-16 code units, in which each editor can count."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def split_line(line: str, character: int, keeps_cr: bool = False) -> tuple[str, str]:
    r"""Splits `line` at the editor's offset `character`. `keeps_cr`: a \r before its \n may be text.

    An offset after the end of the line means the end, before the line end characters (LSP, Position). An offset inside
    a surrogate pair splits the pair, because editors do send edits of one half; `join_surrogates` joins the halves.
    """
    text = line.removesuffix("\n") if keeps_cr else line.rstrip("\r\n")
    if keeps_cr and character > num_units(text):
        text = line.rstrip("\r\n")
    head = text[:character]  # a code point has at least one unit, so the split is in `head`
    if line.isascii():
        return head, line[len(head) :]
    before = head.encode("utf-16-le", "surrogatepass")[: 2 * character].decode("utf-16-le", "surrogatepass")
    if line.startswith(before):
        return before, line[len(before) :]
    low_half = chr(0xDC00 + (ord(line[len(before) - 1]) & 0x3FF))
    return before, low_half + line[len(before) :]


def join_surrogates(text: str) -> str:
    """Returns `text` with each surrogate pair joined to one code point. Lone surrogates stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
