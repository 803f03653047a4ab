"""Indentation as the file has it: tabs or blanks, and how many for each level."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from inference.brackets import match_brackets
from lsp_server.context import Context

_TABS = re.compile(r"^\t+", re.MULTILINE)
_TAB_COLUMNS = 4  # of a tab in the model's text, or in a line of the file that the model read
_MAX_UNIT = 8  # blanks for one level
_OPENERS = (":", "{")
# Lines of Python after which a block must follow, by which text without a language is Python.
_HEADER = re.compile(r"\s*(?:async\s|if|for|while|def|class|with|try|else|elif|except|finally)\b[^#]*:\s*(?:#.*)?$")


def match_indentation(text: str, context: Context, find_default: Callable[[], str | None] = lambda: None) -> str:
    """Writes the indentation of the text's lines as the file does.

    A line that is deeper than the one above, which opens a block, gets one level of the file more. A line that is less
    deep gets the indentation of the line that it returns to. If there is no such line, the text ends before it. Inside
    brackets and texts of several lines, the columns by which a line is deeper are kept. On a blank line, `text` may
    begin with blanks. They are those that are missing up to a level of the file. `find_default` finds the indentation
    of one level where no line shows it.
    """
    is_bare = "\n" not in text and not text[:1].isspace()
    unit = None if is_bare else find_unit(context) or find_default()  # which takes as long as the rest of an answer
    if unit is None:
        return text
    lines = text.split("\n")
    levels = _find_levels(context, unit)
    if not context.line_before.strip():
        lines[0] = _begin(lines[0], context.line_before, levels)
    writer = _Writer(unit, levels, find_open_quotes(context.prefix[: len(context.prefix) - len(context.line_before)]))
    kept = [lines[0]]
    writer.note_end(context.line_before + lines[0])
    for line in lines[1:]:
        written = writer.write(line)
        if written is None:
            break
        kept.append(written)
    return "\n".join(kept)


def write_blanks(context: Context, language: str | None = None) -> Context:
    """The text of a Python file that is indented with tabs, with four blanks for each, as most of Python is written.

    Models know that better. What they write is brought back by `match_indentation`. `language`: None if only the text
    shows it.
    """
    if language is None and any(map(_HEADER.match, context.prefix.split("\n"))):
        language = "python"
    if language != "python" or "\n\t" not in context.prefix or find_unit(context) != "\t":
        return context
    rest, line_end, below = context.suffix.partition("\n")
    return Context(_TABS.sub(_to_blanks, context.prefix), rest + line_end + _TABS.sub(_to_blanks, below))


def _to_blanks(tabs: re.Match[str]) -> str:
    return " " * (_TAB_COLUMNS * len(tabs[0]))


def find_unit(context: Context) -> str | None:
    """Returns the indentation of one level in the text around the cursor; None if no line shows it."""
    after_openers: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for part in (context.prefix, context.suffix.partition("\n")[2]):
        above = first = ""  # the line above, and the one that began the same brackets
        depth = 0
        for line in part.split("\n"):
            if not line.strip():
                continue
            blanks, blanks_above = _read_blanks(line), _read_blanks(first)
            if depth and len(blanks) > len(blanks_above):  # aligned with an open bracket
                above, depth = line, max(0, depth + _count_opened(line))
                continue
            step = blanks[len(blanks_above) :]
            if blanks.startswith(blanks_above) and (
                step == "\t" or (1 < len(step) <= _MAX_UNIT and not step.strip(" "))
            ):
                (after_openers if above.rstrip().endswith(_OPENERS) else others)[step] += 1
            above = first = line
            depth = 0 if line.rstrip().endswith((*_OPENERS, "(", "[")) else max(0, _count_opened(line))
    steps = after_openers or others
    return max(steps, key=lambda step: (steps[step], -len(step))) if steps else None


@dataclass(frozen=True, slots=True)
class _Level:
    """The indentation of a block: its columns in the model's text, and how the file writes it."""

    columns: int
    written: str


class _Writer:
    """Writes one line after the other with the indentation of the file."""

    def __init__(self, unit: str, levels: list[_Level], open_quotes: str | None) -> None:
        self._unit = unit
        self._open_quotes = open_quotes  # of the text of several lines in which the next line begins
        self._levels = levels  # those of the blocks around the line, the outermost first
        self._is_continued = False  # the line above, by its backslash
        self._opens_block = False
        self._depth = 0  # of open brackets

    def write(self, line: str) -> str | None:
        """Returns the line as the file would write it; None if it returns to a level that the file does not have."""
        if not line.strip():
            return ""
        blanks = _read_blanks(line)
        written = self._find_indentation(_count_columns(blanks))
        if written is None:
            return None
        self.note_end(line)
        return written + line[len(blanks) :]

    def _find_indentation(self, columns: int) -> str | None:
        if self._depth > 0 or self._open_quotes is not None:
            return self._align(columns)
        if columns > self._levels[-1].columns:
            if self._is_continued:
                return self._align(columns)
            written = self._levels[-1].written + self._unit if self._opens_block else self._align(columns)
            self._levels.append(_Level(columns, written))
        while self._levels[-1].columns > columns:
            self._levels.pop()
            if not self._levels:
                return None
        return self._levels[-1].written if self._levels[-1].columns == columns else None

    def _align(self, columns: int) -> str:
        """The indentation of a line in brackets or a text, or of one that is deeper without a reason."""
        base = next((level for level in reversed(self._levels) if level.columns <= columns), _Level(0, ""))
        deeper = columns - base.columns
        if self._unit == "\t":
            return base.written + "\t" * (deeper // _TAB_COLUMNS) + " " * (deeper % _TAB_COLUMNS)
        return base.written + " " * deeper

    def note_end(self, line: str) -> None:
        """Notes what is open at the end of a line, for the next one."""
        was_open, self._open_quotes = self._open_quotes, find_open_quotes(line, self._open_quotes)
        is_code = was_open is None and self._open_quotes is None
        self._is_continued = is_code and line.endswith("\\")
        self._opens_block = is_code and line.partition("#")[0].rstrip().endswith(_OPENERS)
        if is_code:
            self._depth = max(0, self._depth + _count_opened(line))


def _count_opened(line: str) -> int:
    """Returns how many round and square brackets a line opens; less than 0 if it closes more."""
    lacking, unopened = match_brackets(line)
    return sum(bracket != "}" for bracket in lacking) - sum(bracket != "}" for bracket in unopened)


def _begin(first_line: str, line_before: str, levels: list[_Level]) -> str:
    """Returns the first line of text on a blank line. The last of `levels` becomes that of the line.

    Blanks at the beginning lead to the deepest level of the file that they reach. If that is the cursor's own, they are
    removed: the model has counted on another indentation than the file's.
    """
    blanks = _read_blanks(first_line)
    columns = _count_columns(line_before + blanks)
    reached = [level for level in levels if level.columns <= columns and level.written.startswith(line_before)]
    written = max(reached, key=lambda level: level.columns).written if reached else line_before
    while levels and levels[-1].columns >= min(columns, _count_columns(written)):
        levels.pop()
    levels.append(_Level(columns, written))
    return written[len(line_before) :] + first_line[len(blanks) :]


def _find_levels(context: Context, unit: str) -> list[_Level]:
    """The indentations of the blocks around the cursor's line, the outermost first.

    The last one is the line's own, or, on a blank line, the deepest that it may have.
    """
    lines = [line for line in context.prefix.split("\n")[:-1] if line.strip()]
    levels: list[_Level] = []
    if context.line_before.strip():
        lines.append(context.line_before)
    elif lines and lines[-1].partition("#")[0].rstrip().endswith(_OPENERS):
        block = _read_blanks(lines[-1]) + unit
        levels.append(_Level(_count_columns(block), block))
    for line in reversed(lines):
        blanks = _read_blanks(line)
        columns = _count_columns(blanks)
        if not levels or columns < levels[0].columns:
            levels.insert(0, _Level(columns, blanks))
        if columns == 0:
            break
    if not levels or levels[0].columns > 0:
        levels.insert(0, _Level(0, ""))
    return levels


def _read_blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _count_columns(blanks: str) -> int:
    return len(blanks.expandtabs(_TAB_COLUMNS))


_QUOTES = re.compile(r'"""|\'\'\'')


def find_open_quotes(code: str, opened: str | None = None) -> str | None:
    """Returns the three quotes that are open after `code`; None if none are. `opened`: those that are open before it.

    Quotes in comments count, too.
    """
    for match in _QUOTES.finditer(code):
        if opened is None:
            opened = match[0]
        elif match[0] == opened:
            opened = None
    return opened
