"""Private keys of several lines, in PEM, OpenSSH, PGP or PuTTY form. detect-secrets finds only their first lines.

A block goes from the line that says BEGIN to the one that says END, if something between them looks like a key. Without
an END, as while it is typed, it goes on as long as the lines look like those of a key. So code between or after texts
such as "-----BEGIN PRIVATE KEY-----" is not part of a block.
"""

import re
from collections.abc import Iterator

from lsp_server.privacy.spans import Span

_BEGIN = re.compile(r"(?:-{2,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?|PuTTY-User-Key-File-\d)")
_END = re.compile(r"-{2,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?[ -]*-?|Private-MAC: *[0-9a-fA-F]+")
_HINTS = ("PRIVATE KEY", "PuTTY-User-Key-File-")
_ESCAPED_END = re.compile(r"\\[nr]")
# What stands around the lines of a key in source text: quotes, comment signs, continuations.
_AROUND = " \t\r\"'`+\\,()#/*;|>frb"
_LONG_RUN = re.compile(r"[A-Za-z0-9+/]{32}")
_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{16,}|[A-Za-z0-9+/]*=+|[A-Z][A-Za-z-]*: ?.*")
MAX_LINES = 400  # a key of 16,384 bits has some 200


def find_blocks(text: str) -> Iterator[Span]:
    r"""Yields where the key blocks of a text are. Its lines end with \n."""
    if not any(hint in text for hint in _HINTS):
        return
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        at = _find_end(text, begin)
        yield Span(begin.start(), at)


def begins_block(line: str) -> bool:
    """True for the first line of a block."""
    return (_HINTS[0] in line or _HINTS[1] in line) and _BEGIN.search(line) is not None


def _find_end(text: str, begin: "re.Match[str]") -> int:
    line_end = _find_line_end(text, begin.end())
    limit = line_end
    for _ in range(MAX_LINES):
        limit = _find_line_end(text, limit + 1)
    end = _END.search(text, begin.end(), limit)
    if end is not None and (end.start() < line_end or _LONG_RUN.search(text, line_end, end.start())):
        return end.end()
    return _find_end_of_material(text, line_end, limit)


def _find_end_of_material(text: str, line_end: int, limit: int) -> int:
    end_of_material = line_end
    while line_end < limit:
        start, line_end = line_end + 1, _find_line_end(text, line_end + 1)
        bare = _ESCAPED_END.sub("", text[start:line_end]).strip(_AROUND)
        if bare and not _MATERIAL.fullmatch(bare):
            break
        end_of_material = line_end if bare else end_of_material
    return end_of_material


def _find_line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end
