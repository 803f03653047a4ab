"""Offsets within a line, in the position encoding that the editor and the server negotiated (LSP 3.17)."""

from lsprotocol.types import PositionEncodingKind

_LINE_ENDS = "\r\n"


def num_units(text: str, encoding: PositionEncodingKind) -> int:
    """Returns the length of `text` in the encoding's units: bytes, UTF-16 code units or code points."""
    if text.isascii() or encoding is PositionEncodingKind.Utf32:
        return len(text)
    if encoding is PositionEncodingKind.Utf8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def split_line(line: str, character: int, encoding: PositionEncodingKind) -> tuple[str, str]:
    """Splits `line` at the editor's offset `character`.

    An offset after the end of the line means the end, before the line end characters (LSP, Position). An offset inside
    the UTF-8 bytes of a code point means the start of the code point. An offset inside a surrogate pair splits the
    pair, because UTF-16 editors do send edits of one half; `join_surrogates` joins the halves again.
    """
    end = len(line)
    while end > 0 and line[end - 1] in _LINE_ENDS:
        end -= 1
    head = line[: min(character, end)]  # a code point has at least one unit, so the split is in `head`
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
    """Returns `text` with each surrogate pair joined to one code point. Lone surrogates stay."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _count_code_points(text: str, num_bytes: int) -> int:
    """Returns how many whole code points are in the first `num_bytes` bytes of the text as UTF-8."""
    encoded = text.encode("utf-8", "surrogatepass")
    while num_bytes < len(encoded) and encoded[num_bytes] & 0xC0 == 0x80:
        num_bytes -= 1
    return len(encoded[:num_bytes].decode("utf-8", "surrogatepass"))
