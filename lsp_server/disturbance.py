"""When a suggestion that nobody asked for would disturb."""

from lsp_server.filters.suffix_overlap import is_word
from lsp_server.reporting.reasons import Reason, Silence
from lsp_server.text.context import Context
from lsp_server.text.documents import Document, Edit, Place

_MAX_TYPED_CHARS = 40  # more in one edit are not typed


def find_disturbance(document: Document, place: Place, context: Context) -> Silence | None:
    """Returns why an automatic suggestion would disturb at `place`; None if it does not."""
    is_edited = document.was_edited_at(place.position)
    if _is_inside_word(context) and not is_edited:
        return Silence(Reason.INSIDE_WORD)
    if document.was_pasted and is_edited:
        return Silence(Reason.PASTED)
    return None


def is_paste(edit: Edit | None, offered: frozenset[str]) -> bool:
    """True if an edit inserts more than a person types at once, or an editor for them.

    `offered`: the texts that were suggested last. An edit that inserts one of them, or a part, is an acceptance.
    """
    return edit is not None and _is_long(edit.text) and not _is_offered(edit.text, offered)


def _is_inside_word(context: Context) -> bool:
    before, after = context.line_before[-1:], context.line_after[:1]
    return before != "" and after != "" and is_word(before) and is_word(after)


def _is_long(text: str) -> bool:
    return len(text) > _MAX_TYPED_CHARS or "\n" in text.strip()


def _is_offered(text: str, offered: frozenset[str]) -> bool:
    inserted = text.replace("\r\n", "\n").replace("\r", "\n")
    return any(inserted in each for each in offered)
