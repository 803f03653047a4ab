"""A cursor in a file, as a person writes it: FILE:LINE:COLUMN."""

from dataclasses import dataclass
from pathlib import Path

from inference.errors import MidtokenError

_NEAR_CHARS = 1_000_000


class PlaceError(MidtokenError):
    """The place is not one in a readable text file. The text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Place:
    """The text around a cursor."""

    path: Path
    prefix: str
    suffix: str

    @property
    def near_prefix(self) -> str:
        """As much before the cursor as any model here can see."""
        return self.prefix[-_NEAR_CHARS:]

    @property
    def near_suffix(self) -> str:
        """As much after the cursor as any model here can see."""
        return self.suffix[:_NEAR_CHARS]

    @property
    def line_before(self) -> str:
        """The cursor's line up to the cursor."""
        return self.prefix[self.prefix.rfind("\n") + 1 :]

    @property
    def line_after(self) -> str:
        """The cursor's line from the cursor on."""
        return self.suffix.partition("\n")[0]


def read_place(text: str) -> Place:
    """The place that `FILE:LINE:COLUMN` names; both count from 1, the column in characters.

    Column 1 stands before the first character; without a column the cursor stands at the line's end.
    Raises PlaceError.
    """
    name, line, column = _split(text)
    path = Path(name)
    try:
        content = path.read_bytes().decode()
    except OSError as error:
        raise PlaceError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise PlaceError(f"{path} is not UTF-8 at byte {error.start}") from None
    lines = content.split("\n")
    if not 1 <= line <= len(lines):
        raise PlaceError(f"{path} has {len(lines)} lines; there is no line {line}")
    length = len(lines[line - 1].removesuffix("\r"))
    if column is None:
        column = length + 1
    if not 1 <= column <= length + 1:
        raise PlaceError(f"line {line} of {path} has {length} characters; a cursor stands at column 1 to {length + 1}")
    at = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
    return Place(path, content[:at], content[at:])


def _split(text: str) -> tuple[str, int, int | None]:
    parts = text.rsplit(":", 2)
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
        return parts[0], int(parts[1]), int(parts[2])
    parts = text.rsplit(":", 1)
    if len(parts) == 2 and parts[1].isdecimal():
        return parts[0], int(parts[1]), None
    raise PlaceError(f"{text!r} is not FILE:LINE:COLUMN, as in app.py:12:9")
