"""The name of a byte that follows a text, in readable form."""

import codecs
from dataclasses import dataclass

from inference.protocol.characters import END
from midtoken.display.graphemes import mark_blanks


@dataclass(frozen=True, slots=True)
class ByteName:
    """What a byte is shown as."""

    shown: str  # the character that it ends, or itself as \\xNN
    note: str  # its value, and its place in a character of several bytes; empty for the end of the text


def name_byte(byte: int, unfinished: bytes) -> ByteName:
    """Returns the name of a byte after `unfinished`, the bytes of an incomplete character; `END` for the text's end."""
    if byte == END:
        return ByteName("end of text", "")
    data, code = unfinished + bytes([byte]), f"0x{byte:02x}"
    if byte < 0x80:
        return ByteName(mark_blanks(chr(byte)), code)
    try:
        return ByteName(mark_blanks(data.decode()), f"{code}, the last of {len(data)} bytes")
    except UnicodeDecodeError:
        return ByteName(f"\\x{byte:02x}", f"{code}, byte {len(data)} of a character")


def find_unfinished(text: bytes) -> bytes:
    """Returns the bytes of an incomplete character at the end of the text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(text)
    return decoder.getstate()[0]
