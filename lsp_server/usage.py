"""What suggestions bring their user: numbers without text, in a file that stays on this machine."""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, fields
from datetime import date, timedelta
from operator import add
from pathlib import Path
from typing import TypeVar

from inference.errors import LaunchError
from inference.serving.private_files import find_user_folder, make_private_folder, open_private

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Counts:
    """What has become of suggestions."""

    shown: int = 0
    whole: int = 0  # times that all that was left of a suggestion was accepted
    line: int = 0  # times that its next line was
    word: int = 0  # times that its next word was
    saved_keys: int = 0  # the characters that were accepted, less one for each time
    wrong_chars: int = 0  # characters that were shown where others were typed
    first_reads: int = 0  # times that a key waited until the model had read the text around it

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*map(add, astuple(self), astuple(other)))


_Key = TypeVar("_Key")
Usage = Mapping[tuple[date, str], Counts]  # by day and language

_WRITE_S = 60.0
_LANGUAGE = re.compile(r"[\w.+#-]{1,40}", re.ASCII)
_TITLES = ("", "shown", "whole", "by line", "by word", "keys saved", "wrong characters", "first reads")


def find_usage_path(state_dir: Path | None) -> Path:
    """Returns the file in this folder for state, or in the user's own. Raises LaunchError."""
    return (state_dir or find_user_folder("state")) / "stats" / "counts.jsonl"


class UsageFile:
    """The counts of all editors of a user. Each language server appends what is new, at most once a minute.

    A line is an object of JSON: the day, the language, and the counts that are not 0. Lines are never changed, and
    those of one minute are written at once, so that no editor overwrites what another has written.
    """

    def __init__(self, path: Path | None, find_day: Callable[[], date] = date.today) -> None:
        """`path`: None counts nothing."""
        self.is_on = True
        self._path = path
        self._find_day = find_day
        self._new: dict[tuple[date, str], Counts] = {}  # not written yet
        self._writing: asyncio.TimerHandle | None = None

    def add(self, language: str, counts: Counts) -> None:
        """Adds counts of today. They are written within a minute."""
        if self._path is None or not self.is_on or counts == Counts():
            return
        key = self._find_day(), language if _LANGUAGE.fullmatch(language) else "other"
        self._new[key] = self._new.get(key, Counts()) + counts
        if self._writing is None:
            self._writing = asyncio.get_running_loop().call_later(_WRITE_S, self.write)

    def write(self) -> None:
        """Writes what is new, or forgets it if nothing is to be counted any more. On an error, it is kept."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self._path is not None and self.is_on and self._new:
            try:
                make_private_folder(self._path.parent)
                with open_private(self._path, "ab") as file:
                    file.write("".join(map(_to_line, self._new.items())).encode())
            except (OSError, LaunchError) as error:
                _log.warning("midtoken: cannot write statistics: %s", error)
                return
        self._new = {}

    def read(self, num_days: int = 7, language: str | None = None) -> Usage:
        """Returns what was written on the last days, today included, by day and language. Raises OSError.

        Lines that were damaged do not count.
        """
        first = self._find_day() - timedelta(num_days - 1)
        lines = [line for line in self._read_lines() if line[0][0] >= first and language in (None, line[0][1])]
        return dict(sorted(_add_up(lines).items()))

    def delete(self) -> None:
        """Deletes the file. Raises OSError."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _read_lines(self) -> Iterator[tuple[tuple[date, str], Counts]]:
        if self._path is None or not self._path.exists():
            return
        with self._path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                with suppress(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
                    entry = json.loads(line)
                    counts = Counts(*(int(entry.get(field.name, 0)) for field in fields(Counts)))
                    (language,) = _LANGUAGE.findall(entry["language"])
                    yield (date.fromisoformat(entry["day"]), language), counts


def _add_up(counts: Iterable[tuple[_Key, Counts]]) -> dict[_Key, Counts]:
    sums: dict[_Key, Counts] = {}
    for key, each in counts:
        sums[key] = sums.get(key, Counts()) + each
    return sums


def _to_line(item: tuple[tuple[date, str], Counts]) -> str:
    (day, language), counts = item
    numbers = {name: number for name, number in asdict(counts).items() if number}
    return json.dumps({"day": str(day), "language": language, **numbers}) + "\n"


def describe(usage: Usage) -> str:
    """Returns a table with a row for each language, then one for each day, then the sum."""
    if not usage:
        return "No suggestions were counted in these days.\n"
    rows: list[tuple[str, ...]] = [_TITLES]
    for heading in (lambda key: key[1], lambda key: str(key[0]), lambda _: "all"):
        sums = _add_up((heading(key), counts) for key, counts in usage.items())
        rows += [(name, *(f"{number:,}" for number in astuple(counts))) for name, counts in sums.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(_pad(row, widths) for row in rows)


def _pad(row: tuple[str, ...], widths: list[int]) -> str:
    numbers = (number.rjust(width) for number, width in zip(row[1:], widths[1:], strict=True))
    return "   ".join((row[0].ljust(widths[0]), *numbers)) + "\n"
