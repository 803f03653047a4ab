"""Where a completion ends: after a line, after an indented block, or before a stop string."""

from dataclasses import dataclass, field

from inference.brackets import CLOSER_OF, CLOSERS
from inference.engine.python_code import PythonCode, find_indent, read_python
from inference.protocol.completion import Extent

_BRACKETS, _CLOSERS = tuple(CLOSER_OF), tuple(CLOSERS)
_OPENERS = (":", *_BRACKETS)


@dataclass(frozen=True, slots=True)
class LineRule:
    """Ends the completion before the first line break."""

    code: PythonCode | None = field(default=None, compare=False)

    def find_end(self, text: str, line_start: int = 0) -> int | None:
        """The end of the completion in `text`, or None while it may continue. `line_start`: no line before ends it."""
        if self.code is not None and not self.code.has_place(text, 0):
            return 0
        end = text.find("\n", line_start)
        return None if end < 0 else _without_cr(text, end)

    def count_settled(self, text: str) -> int:
        """How many of the first characters of a text without an end stay, however it goes on."""
        return 0 if self.code is not None and self.code.may_lack_place(text, 0) else _without_cr(text, len(text))


@dataclass(frozen=True, slots=True)
class BlockRule:
    """Ends the completion before the first line that is indented less than the block.

    In Python it also ends before a line that cannot stand where it is, and not in brackets and strings of its own.
    """

    min_indent: int  # the minimum indentation of the block's lines, in columns
    closes: bool  # a line that is indented less, begins with a closing bracket and opens none is the last line
    code: PythonCode | None = field(default=None, compare=False)

    def find_end(self, text: str, line_start: int = 0) -> int | None:
        """The end of the completion in `text`, or None while it may continue. `line_start`: no line before ends it."""
        if self.code is not None and not self.code.has_place(text, 0):
            return 0
        start = line_start or text.find("\n") + 1
        while start:
            end = text.find("\n", start)
            line = text[start : len(text) if end < 0 else end]
            body = line.lstrip(" \t\r")
            is_outside = body and find_indent(line) < self.min_indent
            if is_outside and not (self.code is not None and self.code.is_inside(text[:start], body)):
                if not (self.closes and body.startswith(_CLOSERS)):
                    return len(text[:start].rstrip())
                if end >= 0 and not line.rstrip().endswith(_BRACKETS):  # `} else {` is in the middle
                    return _without_cr(text, end)
            elif self.code is not None and not self.code.has_place(text, start):
                return len(text[:start].rstrip())
            start = end + 1
        return None

    def count_settled(self, text: str) -> int:
        """How many of the first characters of a text without an end stay, however it goes on."""
        line_start = text.rfind("\n") + 1
        line = text[line_start:]
        if self.code is not None and self.code.may_lack_place(text, line_start):
            return len(text[:line_start].rstrip())
        if self.min_indent == 0 and self.code is None:  # nothing is indented less
            return len(text)
        is_outside = line_start > 0 and line.lstrip(" \t\r") and find_indent(line) < self.min_indent
        if is_outside and self.code is not None and not line.lstrip().startswith(_CLOSERS):
            return len(text[:line_start].rstrip())
        return _without_cr(text, len(text)) if is_outside else len(text.rstrip())


def _without_cr(text: str, line_feed: int) -> int:
    """The end of the line before the line feed, without a carriage return."""
    return len(text[:line_feed].removesuffix("\r"))


def build_extent_rule(extent: Extent, prefix: str, suffix: str, path: str = "") -> LineRule | BlockRule:
    """The rule for a completion between `prefix` and `suffix`. `path`: of the file, if it is known."""
    code = read_python(prefix, path)
    if extent is Extent.UNLIMITED:
        return BlockRule(0, closes=False, code=code)  # no line is indented less
    line = prefix[prefix.rfind("\n") + 1 :]
    line_remainder = suffix.partition("\n")[0].strip()
    opens = line.rstrip().endswith(_OPENERS)
    above = prefix[: len(prefix) - len(line)].rstrip()
    in_new_block = not line.strip() and above.endswith(_OPENERS)
    if extent is Extent.SINGLE_LINE or (extent is Extent.AUTO and (line_remainder or not (opens or in_new_block))):
        return LineRule(code)
    if opens:
        return BlockRule(find_indent(code.line_before if code else line) + 1, closes=True, code=code)
    if in_new_block:
        header = (
            next((each for each in reversed(code.above) if each.strip()), "") if code else above.rpartition("\n")[2]
        )
        return BlockRule(find_indent(header) + 1, closes=True, code=code)
    return BlockRule(find_indent(line), closes=False, code=code)


def find_stop(text: str, stops: tuple[str, ...], num_added: int | None = None) -> int | None:
    """The start of the first stop string in the text, or None. `num_added`: there was none before these characters."""
    added_at = 0 if num_added is None else len(text) - num_added
    found = [at for at in (text.find(stop, max(added_at - len(stop) + 1, 0)) for stop in stops) if at >= 0]
    return min(found, default=None)


def count_stable(text: str, stops: tuple[str, ...]) -> int:
    """How many of the first characters cannot be part of a stop string that is still incomplete."""
    return min((find_beginning(text, stop) for stop in stops), default=len(text))


def find_beginning(text: str, wanted: str, start: int = 0) -> int:
    """Where `wanted` may begin in `text[start:]`: it is there, but not yet whole. The end of the text if nowhere."""
    at = text.find(wanted[0], max(len(text) - len(wanted) + 1, start))
    while at >= 0:
        if wanted.startswith(text[at:]):
            return at
        at = text.find(wanted[0], at + 1)
    return len(text)
