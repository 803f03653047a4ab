"""A request of the editor for a completion at a place in a document."""

import enum
from dataclasses import dataclass, field

from lsprotocol.types import Position

from lsp_server.context import Context, Excerpt, cut_excerpt
from lsp_server.documents import Document, Place
from lsp_server.settings import Settings


class Purpose(enum.Enum):
    """What the answer of the completion server is for."""

    BEST = enum.auto()  # the most likely text
    ALTERNATIVES = enum.auto()  # some other texts, drawn at random
    PREFETCH = enum.auto()  # no answer: the server caches the text before a key asks for it


@dataclass(frozen=True, slots=True)
class EditorRequest:
    """A request, with the text and the settings at the time of the request. A later edit makes it obsolete.

    Two requests are equal if their texts and settings are equal.
    """

    place: Place = field(compare=False)
    excerpt: Excerpt
    settings: Settings
    confidence: float  # the least probability of the text that is shown
    is_expected: bool = False  # the text is not that of the document now, but what is expected

    @property
    def context(self) -> Context:
        """The text around the cursor. What is sent may differ (`lsp_server.request_builder`)."""
        return self.excerpt.context


def build_editor_request(
    document: Document, position: Position, settings: Settings, is_invoked: bool = False
) -> EditorRequest:
    """Returns the request at a position. `is_invoked`: the user asked, and also gets an unlikely text.

    Raises EditorError.
    """
    place = document.find_place(position)
    excerpt = cut_excerpt(document, place.position, settings)
    return EditorRequest(place, excerpt, settings, 0.0 if is_invoked else settings.confidence)
