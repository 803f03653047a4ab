"""A cursor in a file, written as FILE:LINE:COLUMN."""

from dataclasses import dataclass
from pathlib import Path

from midtoken.errors import CursorError

_NEAR_CHARS = 1_000_000  # more than the window of most models


@dataclass(frozen=True, slots=True)
class Cursor:
    """A cursor, and the text of its file before and after it."""

    path: Path
    prefix: str
    suffix: str

    @property
    def near_prefix(self) -> str:
        """The text before the cursor, as much as a request needs."""
        return self.prefix[-_NEAR_CHARS:]

    @property
    def near_suffix(self) -> str:
        """The text after the cursor, as much as a request needs."""
        return self.suffix[:_NEAR_CHARS]

    @property
    def line_before(self) -> str:
        """The cursor's line up to the cursor."""
        return self.prefix[self.prefix.rfind("\n") + 1 :]

    @property
    def line_after(self) -> str:
        """The cursor's line after the cursor."""
        return self.suffix.partition("\n")[0]


def read_cursor(text: str) -> Cursor:
    """Reads the file and the cursor that `FILE:LINE:COLUMN` names. Lines and columns count from 1.

    Columns are characters; column 1 is before the first one. Without a column, the cursor is at the end of the line.
    Raises CursorError.
    """
    name, line, column = _split(text)
    path = Path(name)
    try:
        content = path.read_bytes().decode()
    except OSError as error:
        raise CursorError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CursorError(f"{path} is not UTF-8 at byte {error.start}") from None
    lines = content.split("\n")
    if not 1 <= line <= len(lines):
        raise CursorError(f"{path} has {len(lines)} lines; there is no line {line}")
    length = len(lines[line - 1].removesuffix("\r"))
    if column is None:
        column = length + 1
    if not 1 <= column <= length + 1:
        raise CursorError(
            f"line {line} of {path} has {length} characters; the column must be between 1 and {length + 1}"
        )
    at = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
    return Cursor(path, content[:at], content[at:])


def _split(text: str) -> tuple[str, int, int | None]:
    parts = text.rsplit(":", 2)
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
        return parts[0], int(parts[1]), int(parts[2])
    parts = text.rsplit(":", 1)
    if len(parts) == 2 and parts[1].isdecimal():
        return parts[0], int(parts[1]), None
    raise CursorError(f"{text!r} is not FILE:LINE:COLUMN, as in app.py:12:9")
