"""Characters that must not reach a buffer unseen."""

import re

from lsp_server.text.context import Context

# Control characters other than \t and \n, and those that make an editor show text in another order than it is.
_UNSAFE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def cut_at_unsafe(text: str, _context: Context) -> str:
    """Cuts `text` before the first control character or change of the writing direction."""
    return _UNSAFE.split(text, maxsplit=1)[0]
