"""Text and probabilities in the form in which commands show them."""

import math
import unicodedata
from collections.abc import Sequence

from inference.protocol.completion import ExplainedNode
from lsp_server.settings import Settings

_MARKS = {" ": "·", "\n": "⏎", "\t": "⇥"}


def mark_blanks(text: str) -> str:
    """Returns the text as one printable line: blanks, tabs and line ends are marked, control characters are escaped."""
    return "".join(_MARKS.get(char) or _show_char(char) for char in text)


def _show_char(char: str) -> str:
    """Returns the character in printable form; as \\xNN if it stands for a byte that is not UTF-8."""
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char


CONFIDENCE = Settings().confidence


def compute_shares(nodes: Sequence[ExplainedNode]) -> tuple[float | None, ...]:
    """Returns for each node the share of its crossing in the mass of all; None for a node without a crossing."""
    masses = [node.log_mass for node in nodes if node.log_mass is not None]
    largest = max(masses, default=0.0)
    total = largest + math.log(sum(math.exp(mass - largest) for mass in masses) or 1.0)
    return tuple(None if node.log_mass is None else math.exp(node.log_mass - total) for node in nodes)
