"""The requests that the language server would send for a session, if it asked the server at each key."""

from collections.abc import Iterator

from lsprotocol.types import (
    Position,
    PositionEncodingKind,
    Range,
    TextDocumentContentChangePartial,
    TextDocumentItem,
)

from benchmarks.corpora.typing import Session
from inference.protocol.completion import Chunks, CompletionRequest
from lsp_server.context import cut_context
from lsp_server.documents import Document
from lsp_server.settings import Settings

_ENCODING = PositionEncodingKind.Utf32  # counts characters, as Python does


def iter_requests(session: Session) -> Iterator[CompletionRequest]:
    """Yields the request of each edit, with the text around the cursor cut as the language server cuts it."""
    settings = Settings()
    texts = [*session.documents]
    documents = [
        Document(TextDocumentItem(str(index), "python", 0, text), _ENCODING) for index, text in enumerate(texts)
    ]
    for moment in session.iter_moments():
        key, document = moment.key, documents[moment.key.document]
        if not key.is_edit:
            continue
        span = Range(find_position(texts[key.document], key.start), find_position(texts[key.document], key.end))
        document.apply(document.version + 1, [TextDocumentContentChangePartial(range=span, text=key.text)])
        texts[key.document] = moment.text
        context = cut_context(document, find_position(moment.text, key.cursor), settings)
        yield CompletionRequest(
            context.prefix,
            context.suffix,
            settings.max_tokens,
            settings.healing,
            extent=settings.extent,
            chunks=Chunks.LINES,
        )


def find_position(text: str, offset: int) -> Position:
    """Returns the LSP position of a character, in UTF-32 units. The text has no other line ends than line feeds."""
    line_start = text.rfind("\n", 0, offset) + 1
    return Position(text.count("\n", 0, offset), offset - line_start)
