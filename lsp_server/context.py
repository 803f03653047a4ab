"""Selects the text of a document that is sent for a completion at a position."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inference.protocol.completion import replace_surrogates
from lsp_server.settings import Settings

if TYPE_CHECKING:  # commands have no documents, and importing lsprotocol takes as long as a completion
    from lsprotocol.types import Position

    from lsp_server.documents import Document


@dataclass(frozen=True, slots=True)
class Context:
    r"""The text around the cursor, with \n as its only line end and no lone surrogates."""

    prefix: str
    suffix: str
    head: str = ""  # text before the prefix that may be the beginning of a secret; it is not sent
    tail: str = ""  # text after the suffix that may be the end of one; it is not sent

    @property
    def line_before(self) -> str:
        """The cursor's line up to the cursor."""
        return self.prefix[self.prefix.rfind("\n") + 1 :]

    @property
    def line_after(self) -> str:
        """The cursor's line after the cursor."""
        return self.suffix.partition("\n")[0]


# Around what is sent: longer than tokens are, and enough lines to know those of a key, or a value below its name.
MARGIN_LINES = 4
MARGIN_CHARS = 2048


def move_window(document: "Document", position: "Position", settings: Settings, is_waited_for: bool = True) -> None:
    """Moves the line at which the prefix of a completion at `position` starts, if it must be moved.

    That is where the prefix no longer fits, or is less than half full, and then by at least a quarter of the limit. If
    it moved with each typed line, the model could reuse nothing that it has computed for the prefix. While nobody
    waits, it moves before the prefix is full, so that no key has to move it. Raises EditorError.
    """
    lines, line, before, _ = document.split_with_above(position)
    max_bytes = settings.prefix_bytes
    if _exceeds(before, max_bytes):
        document.anchor_line = line
        return
    remaining_bytes = max_bytes - _num_bytes(before)
    full_start = _find_start(lines, line, remaining_bytes - (0 if is_waited_for else int(max_bytes * _AHEAD_FRACTION)))
    half_start = _find_start(lines, line, remaining_bytes - max_bytes // 2)
    # From full_start the window is full, from half_start half full.
    if not full_start <= document.anchor_line <= half_start:
        document.anchor_line = _find_start(lines, line, remaining_bytes - max_bytes // 4)


def cut_context(document: "Document", position: "Position", settings: Settings) -> Context:
    """Returns the text to send for a completion at `position`, within the size limits of the settings.

    The window must have been moved there, and the position be that of a Place: within the text, and not inside a code
    point. Raises EditorError.
    """
    lines, line, before, after = document.split_with_above(position)
    first, max_bytes = document.anchor_line, settings.prefix_bytes
    start = _find_start_in_line(before, max_bytes) if _exceeds(before, max_bytes) else 0
    end, size = _find_suffix(lines, line, after, settings.suffix_bytes)
    above, below = lines[max(0, first - MARGIN_LINES) : first], lines[end : end + MARGIN_LINES]
    before, after = "".join(lines[first:line]) + before, after + "".join(lines[line + 1 : end])
    head = "".join(above) + before[max(0, start - MARGIN_CHARS) : start]
    tail = after[size : size + MARGIN_CHARS] + "".join(below)
    prefix, suffix = clean(before[start:]), clean(after[:size])
    return Context(prefix, suffix, clean(head[-MARGIN_CHARS:]), clean(tail[:MARGIN_CHARS]))


_AHEAD_FRACTION = 1 / 8  # of the prefix; more is seldom typed without a pause


def _find_start(lines: Sequence[str], line: int, max_bytes: int) -> int:
    """Returns the first line such that the text from it up to `line` has at most `max_bytes`."""
    while line > 0:
        max_bytes -= _num_bytes(lines[line - 1])
        if max_bytes < 0:
            break
        line -= 1
    return line


def _find_start_in_line(before: str, max_bytes: int) -> int:
    """Returns where the end of a line starts that is longer than the window.

    It is at a multiple of a quarter of the window, so it stays the same for many keystrokes.
    """
    step = max_bytes // 4
    start = max(0, len(before) - max_bytes)
    start += -start % step
    while _exceeds(before[start:], max_bytes):
        start += step
    return start


def _find_suffix(lines: Sequence[str], line: int, after: str, max_bytes: int) -> tuple[int, int]:
    """Returns the first line after the suffix, and how many characters the suffix has."""
    if _exceeds(after, max_bytes):
        whole = replace_surrogates(after[:max_bytes]).encode()[:max_bytes].decode("utf-8", "ignore")
        return line + 1, len(whole)
    num_chars, remaining_bytes, end = len(after), max_bytes - _num_bytes(after), line + 1
    while end < len(lines) and (num_bytes := _num_bytes(lines[end])) <= remaining_bytes:
        num_chars, remaining_bytes, end = num_chars + len(lines[end]), remaining_bytes - num_bytes, end + 1
    return end, num_chars


def _exceeds(text: str, max_bytes: int) -> bool:
    return len(text) > max_bytes or _num_bytes(text) > max_bytes


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def clean(text: str) -> str:
    r"""Returns text of a document as it is sent: \n as its only line end, and no lone surrogates."""
    return replace_surrogates(text.replace("\r\n", "\n").replace("\r", "\n"))
