"""Offsets within a line, in the units that editor and server have agreed on (LSP 3.17, PositionEncodingKind)."""

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
    """The text of `line` before and after the editor's offset `character`; together they are `line`.

    An offset after the line's end means its end, before the line end characters (LSP, Position). An offset inside the
    UTF-8 bytes of a code point means the code point's start. An offset between the halves of a surrogate pair splits
    the pair, because UTF-16 editors do send edits of one half; `join_surrogates` joins the halves again.
    """
    end = len(line)
    while end > 0 and line[end - 1] in _LINE_ENDS:
        end -= 1
    head = line[: min(character, end)]  # a code point has at least one unit, so the split is in here
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
    """`text` with one code point for each high surrogate that a low one follows; lone surrogates stay."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def replace_surrogates(text: str) -> str:
    """`text` with U+FFFD for each lone surrogate, so that it can be sent as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _count_code_points(text: str, num_bytes: int) -> int:
    """How many whole code points the first `num_bytes` of the UTF-8 text hold."""
    encoded = text.encode("utf-8", "surrogatepass")
    while num_bytes < len(encoded) and encoded[num_bytes] & 0xC0 == 0x80:
        num_bytes -= 1
    return len(encoded[:num_bytes].decode("utf-8", "surrogatepass"))
