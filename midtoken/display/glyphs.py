"""What stands in one place on the screen: a character with all that is drawn onto it, or a byte that is none."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

_MARKS = str.maketrans({" ": "·", "\n": "⏎", "\t": "⇥"})
_JOINER = "\u200d"  # of emoji
_SKIN_TONES = range(0x1F3FB, 0x1F400)


@dataclass(frozen=True, slots=True)
class Glyph:
    """A piece of a text. Bytes that are not UTF-8 are lone surrogates in `chars`, as `surrogateescape` makes them."""

    chars: str
    start: int  # the first of its bytes in the text
    num_bytes: int

    @property
    def ends_line(self) -> bool:
        """True for a line feed, and for a carriage return with one."""
        return self.chars.endswith("\n")

    @property
    def shown(self) -> str:
        """What a terminal can print: a line's end as ⏎, a control character as its picture, a tab as it is."""
        if self.ends_line:
            return "⏎"
        return self.chars if self.chars == "\t" else "".join(_show_char(char) for char in self.chars)


def split_glyphs(data: bytes) -> Iterator[Glyph]:
    """The glyphs of the text, which need not be UTF-8."""
    chars, start = "", 0
    for char in data.decode(errors="surrogateescape"):
        if chars and not _is_joined(chars, char):
            glyph = Glyph(chars, start, _count_bytes(chars))
            yield glyph
            chars, start = "", start + glyph.num_bytes
        chars += char
    if chars:
        yield Glyph(chars, start, _count_bytes(chars))


def mark_blanks(text: str) -> str:
    """The text with blanks, tabs and line ends made visible, and what a terminal would act on escaped."""
    return "".join(map(_show_char, text.translate(_MARKS)))


def _is_joined(before: str, char: str) -> bool:
    if before == "\r":
        return char == "\n"
    if unicodedata.category(before[-1]) in ("Cc", "Zl", "Zp"):
        return False
    return (
        unicodedata.category(char) in ("Mn", "Me")
        or char == _JOINER
        or before[-1] == _JOINER
        or ord(char) in _SKIN_TONES
    )


def _show_char(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if char != _JOINER and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char


def _count_bytes(chars: str) -> int:
    return len(chars.encode(errors="surrogateescape"))
