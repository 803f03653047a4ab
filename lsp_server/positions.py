"""Offsets within one line, in the units that editor and server agreed on (LSP 3.17, PositionEncodingKind)."""

from lsprotocol.types import PositionEncodingKind

_LINE_ENDS = "\r\n"


def num_units(text: str, encoding: PositionEncodingKind) -> int:
    """How long `text` is for the editor: in bytes, in UTF-16 code units or in code points."""
    if text.isascii() or encoding is PositionEncodingKind.Utf32:
        return len(text)
    if encoding is PositionEncodingKind.Utf8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def split_line(line: str, character: int, encoding: PositionEncodingKind) -> tuple[str, str]:
    """The text of `line` before and from the editor's offset `character`; together they are `line`.

    An offset behind the line's end means its end, before the line end characters (LSP, Position). One inside
    the bytes of a code point means the code point's start. One between the halves of a surrogate pair really
    splits it: UTF-16 editors do send edits of one half, and `join_surrogates` mends what they put together.
    """
    end = len(line)
    while end > 0 and line[end - 1] in _LINE_ENDS:
        end -= 1
    head = line[: min(character, end)]  # a code point is at least one unit, so the split lies in here
    if line.isascii() or encoding is PositionEncodingKind.Utf32:
        return head, line[len(head) :]
    if encoding is PositionEncodingKind.Utf8:
        index = _count_code_points(head, character)
        return line[:index], line[index:]
    before = head.encode("utf-16-le", "surrogatepass")[: 2 * character].decode("utf-16-le", "surrogatepass")
    if line.startswith(before):
        return before, line[len(before) :]
    low_half = chr(0xDC00 + (ord(line[len(before) - 1]) & 0x3FF))
    return before, low_half + line[len(before) :]


def join_surrogates(text: str) -> str:
    """`text` with each high half that a low half follows made one code point; lone halves stay."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def replace_surrogates(text: str) -> str:
    """`text` with U+FFFD for each lone half, so that it can be sent as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _count_code_points(text: str, num_bytes: int) -> int:
    """How many code points lie whole within the first `num_bytes` of the UTF-8 text."""
    encoded = text.encode("utf-8", "surrogatepass")
    while num_bytes < len(encoded) and encoded[num_bytes] & 0xC0 == 0x80:
        num_bytes -= 1
    return len(encoded[:num_bytes].decode("utf-8", "surrogatepass"))
