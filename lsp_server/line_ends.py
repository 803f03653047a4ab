r"""What ends a line of a document. In LSP it is \n, \r\n or \r; for editors that keep a lone \r as text, only \n."""

import enum
import io
import re


class LineEnds(enum.Enum):
    """The rule by which an editor counts lines."""

    LSP = enum.auto()  # each of the three (Text Documents)
    LF = enum.auto()  # only \n, or only \r in a text without \n; what stands before a \n is text
    UNKNOWN = enum.auto()  # one of both, so a text where they differ cannot be followed


# Their names in `clientInfo`. VS Code, JetBrains, Zed and Sublime Text give all lines of a text the same end.
_LF_CLIENTS = re.compile(r"vim|helix|emacs|eglot|kak|ycmd|^ale$", re.IGNORECASE)


def find_line_ends(client: str) -> LineEnds:
    """Returns the rule of an editor. `client`: its name, which may be empty."""
    return LineEnds.LF if _LF_CLIENTS.search(client) else LineEnds.UNKNOWN


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
