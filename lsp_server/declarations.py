"""Finds the declarations in a source text: functions, classes, constants and attributes, in many languages.

It reads lines, not syntax trees, because the text may be of any language and is seldom complete while somebody types.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lsp_server.context import clean
from lsp_server.positions import replace_surrogates
from lsp_server.privacy.detectors import begins_block, find_blocks
from lsp_server.privacy.redaction import replace_spans

_MAX_LINES = 6  # of a declaration whose brackets are closed on a later line
_MAX_CHARS = 160  # a longer declaration ends with the line that has the last of them

_KEYWORDS = "def|class|fn|func|function|fun|struct|enum|interface|trait|type|module|record|const|let|var|val|object"
_MODIFIERS = "export|default|pub|public|private|protected|internal|static|final|abstract|async|unsafe|inline|open"
_DECLARATION = re.compile(
    rf"[ \t]*(?:(?:{_MODIFIERS})(?:\([a-z]+\))?[ \t]+)*(?:{_KEYWORDS})[ \t]+(?:\([^()\n]*\)[ \t]*)?([^\W\d]\w*)"
)
_CONSTANT = re.compile(r"([^\W\d]\w*)[ \t]*(?::[^=\n]+)?=(?!=)")  # at the start of a line
_ATTRIBUTE = re.compile(r"[ \t]+(?:self|this)\.([^\W\d]\w*)[ \t]*(?::[^=\n]+)?=(?!=)")


@dataclass(frozen=True, slots=True)
class Declaration:
    r"""A name, and the lines that declare it, without the body. \n is the only line end, and not at the end.

    The lines are whole, so that secrets in them are recognised.
    """

    name: str
    text: str


def find_declarations(lines: Sequence[str]) -> list[Declaration]:
    """Returns the declarations in lines with line ends, in their order; of each name only the first.

    A line of a private key may look like a declaration, but is none.
    """
    lines = _drop_private_keys(lines)
    found: dict[str, Declaration] = {}
    for number, line in enumerate(lines):
        match = _DECLARATION.match(line) or _CONSTANT.match(line) or _ATTRIBUTE.match(line)
        if match is not None and match[1] not in found:
            found[match[1]] = Declaration(match[1], _read_text(lines, number))
    return list(found.values())


def _read_text(lines: Sequence[str], first: int) -> str:
    """The line of a declaration, and those after it until its brackets are closed."""
    parts: list[str] = []
    depth = 0
    for line in lines[first : first + _MAX_LINES]:
        parts.append(line.rstrip())
        depth += sum(line.count(bracket) for bracket in "([") - sum(line.count(bracket) for bracket in ")]")
        if depth <= 0 or sum(map(len, parts)) > _MAX_CHARS:
            break
    return replace_surrogates("\n".join(parts).rstrip())


def _drop_private_keys(lines: Sequence[str]) -> Sequence[str]:
    if not any(map(begins_block, lines)):
        return lines
    text = clean("".join(lines))
    return replace_spans(text, list(find_blocks(text))).splitlines(keepends=True)
