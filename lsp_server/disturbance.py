"""When a suggestion that nobody asked for would disturb."""

from lsp_server.filters.suffix_overlap import is_word
from lsp_server.reporting.reasons import Reason, Silence
from lsp_server.text.context import Context
from lsp_server.text.documents import Document, Place

_MAX_TYPED_CHARS = 40  # more in one edit are not typed


def find_disturbance(document: Document, place: Place, context: Context, offered: frozenset[str]) -> Silence | None:
    """Returns why an automatic suggestion would disturb at `place`; None if it does not.

    `offered`: the texts that were suggested last. An edit that inserts one of them, or a part, is an acceptance.
    """
    if _is_inside_word(context) and not document.was_edited_at(place.position):
        return Silence(Reason.INSIDE_WORD)
    edit = document.last_edit
    if edit is not None and _is_paste(edit.text) and not _is_offered(edit.text, offered):
        return Silence(Reason.PASTED)
    return None


def _is_inside_word(context: Context) -> bool:
    before, after = context.line_before[-1:], context.line_after[:1]
    return before != "" and after != "" and is_word(before) and is_word(after)


def _is_paste(text: str) -> bool:
    return len(text) > _MAX_TYPED_CHARS or "\n" in text.strip()


def _is_offered(text: str, offered: frozenset[str]) -> bool:
    inserted = text.replace("\r\n", "\n").replace("\r", "\n")
    return any(inserted in each for each in offered)
