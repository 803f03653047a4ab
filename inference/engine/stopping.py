"""Where a completion ends: at the line, at the indented block, at a stop string."""

from dataclasses import dataclass

from inference.protocol.completion import Extent

_OPENERS = (":", "{", "(", "[")
_CLOSERS = (")", "]", "}")


@dataclass(frozen=True, slots=True)
class LineRule:
    """Ends before the first line end."""

    def find_end(self, text: str) -> int | None:
        """Where the completion ends, or None while it may go on."""
        end = text.find("\n")
        return None if end < 0 else _without_cr(text, end)


@dataclass(frozen=True, slots=True)
class BlockRule:
    """Ends before the first line that stands left of the block."""

    min_indent: int  # columns by which the lines of the block are indented at least
    closes: bool  # a line left of the block that begins with a closing bracket is its last line

    def find_end(self, text: str) -> int | None:
        """Where the completion ends, or None while it may go on."""
        start = text.find("\n") + 1
        while start:
            end = text.find("\n", start)
            line = text[start : len(text) if end < 0 else end]
            body = line.lstrip(" \t\r")
            if body and find_indent(line) < self.min_indent:
                if not (self.closes and body.startswith(_CLOSERS)):
                    return len(text[:start].rstrip())
                if end >= 0:
                    return _without_cr(text, end)
            start = end + 1
        return None


def _without_cr(text: str, line_feed: int) -> int:
    """Where the line before the line feed ends: before a carriage return."""
    return len(text[:line_feed].removesuffix("\r"))


def build_extent_rule(extent: Extent, prefix: str, suffix: str) -> LineRule | BlockRule:
    """The rule for a completion between `prefix` and `suffix`."""
    line = prefix[prefix.rfind("\n") + 1 :]
    rest_of_line = suffix.partition("\n")[0].strip()
    opens = line.rstrip().endswith(_OPENERS)
    above = prefix[: len(prefix) - len(line)].rstrip()
    in_new_block = not line.strip() and above.endswith(_OPENERS)
    if extent is Extent.SINGLE_LINE or (extent is Extent.AUTO and (rest_of_line or not (opens or in_new_block))):
        return LineRule()
    if opens:
        return BlockRule(find_indent(line) + 1, closes=True)
    if in_new_block:
        outer = above[above.rfind("\n") + 1 :]
        return BlockRule(find_indent(outer) + 1, closes=True)
    return BlockRule(find_indent(line), closes=False)


def find_indent(line: str) -> int:
    """Columns of blank before the line's text, tabs to the next multiple of eight."""
    expanded = line.expandtabs(8)
    return len(expanded) - len(expanded.lstrip())


def find_stop(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the first of the stop strings begins, or None."""
    found = [at for at in (text.find(stop) for stop in stops) if at >= 0]
    return min(found, default=None)


def count_stable(text: str, stops: tuple[str, ...]) -> int:
    """How many characters of the text cannot be part of a stop string that is still incomplete."""
    for start in range(max(len(text) - max(map(len, stops), default=1) + 1, 0), len(text)):
        if any(stop.startswith(text[start:]) for stop in stops):
            return start
    return len(text)
