"""Indentation as the file has it: tabs or blanks, and how many for each level."""

import re
from collections import Counter
from dataclasses import dataclass

from lsp_server.brackets import match_brackets
from lsp_server.text.context import Context

_BLANKS = re.compile(r"[ \t]*")
_TAB_COLUMNS = 4  # of a tab in the model's text, or in a line of the file that the model read
_OPENERS = (":", "{")


def match_indentation(text: str, context: Context) -> str:
    """Writes the indentation of the lines after the first as the file does.

    A line that is deeper than the one above, which opens a block, gets one level of the file more. A line that is less
    deep gets the indentation of the line that it returns to. If there is no such line, the text ends before it. Inside
    brackets, the columns by which a line is deeper are kept.
    """
    unit = find_unit(context)
    if unit is None or "\n" not in text:
        return text
    writer = _Writer(unit, _find_levels(context))
    lines = (context.line_before + text).split("\n")
    kept = [lines[0]]
    writer.read_first(lines[0])
    for line in lines[1:]:
        written = writer.write(line)
        if written is None:
            break
        kept.append(written)
    return "\n".join(kept)[len(context.line_before) :]


def find_unit(context: Context) -> str | None:
    """Returns the indentation of one level in the text around the cursor; None if no line shows it."""
    steps: Counter[str] = Counter()
    for part in (context.prefix, context.suffix.partition("\n")[2]):
        last = ""
        for line in part.split("\n"):
            if not line.strip():
                continue
            blanks = _read_blanks(line)
            if len(blanks) > len(last) and blanks.startswith(last):
                steps[blanks[len(last) :]] += 1
            last = blanks
    units = [
        (number, step) for step, number in steps.items() if step == "\t" or (step.strip(" ") == "" and step != " ")
    ]
    return max(units)[1] if units else None


@dataclass(frozen=True, slots=True)
class _Level:
    """The indentation of a block: its columns in the model's text, and how the file writes it."""

    columns: int
    written: str


class _Writer:
    """Writes one line after the other with the indentation of the file."""

    def __init__(self, unit: str, levels: list[_Level]) -> None:
        self._unit = unit
        self._levels = levels  # those of the blocks around the line, the outermost first
        self._opens_block = False
        self._depth = 0  # of open brackets

    def read_first(self, line: str) -> None:
        """Takes the cursor's line as it is."""
        self._note_end(line)

    def write(self, line: str) -> str | None:
        """Returns the line as the file would write it; None if it returns to a level that the file does not have."""
        if not line.strip():
            return ""
        blanks = _read_blanks(line)
        written = self._find_indentation(_count_columns(blanks))
        if written is None:
            return None
        self._note_end(line)
        return written + line[len(blanks) :]

    def _find_indentation(self, columns: int) -> str | None:
        top = self._levels[-1]
        if self._depth > 0:
            return self._align(columns)
        if columns > top.columns:
            if not self._opens_block:
                return self._align(columns)
            self._levels.append(_Level(columns, top.written + self._unit))
        while self._levels[-1].columns > columns:
            self._levels.pop()
            if not self._levels:
                return None
        return self._levels[-1].written if self._levels[-1].columns == columns else None

    def _align(self, columns: int) -> str:
        """The indentation of a line inside brackets, or of one that is deeper without a reason."""
        base = next((level for level in reversed(self._levels) if level.columns <= columns), _Level(0, ""))
        deeper = columns - base.columns
        if self._unit == "\t":
            return base.written + "\t" * (deeper // _TAB_COLUMNS) + " " * (deeper % _TAB_COLUMNS)
        return base.written + " " * deeper

    def _note_end(self, line: str) -> None:
        self._opens_block = line.partition("#")[0].rstrip().endswith(_OPENERS)
        lacking, unopened = match_brackets(line)
        opened = sum(bracket != "}" for bracket in lacking) - sum(bracket != "}" for bracket in unopened)
        self._depth = max(0, self._depth + opened)


def _find_levels(context: Context) -> list[_Level]:
    """The indentations of the cursor's line and of the blocks around it, the outermost first."""
    lines = [line for line in context.prefix.split("\n")[:-1] if line.strip()]
    levels: list[_Level] = []
    for line in [context.line_before, *reversed(lines)]:
        blanks = _read_blanks(line)
        columns = _count_columns(blanks)
        if not levels or columns < levels[0].columns:
            levels.insert(0, _Level(columns, blanks))
        if columns == 0:
            break
    if levels[0].columns > 0:
        levels.insert(0, _Level(0, ""))
    return levels


def _read_blanks(line: str) -> str:
    match = _BLANKS.match(line)
    return match[0] if match else ""


def _count_columns(blanks: str) -> int:
    return len(blanks.expandtabs(_TAB_COLUMNS))
