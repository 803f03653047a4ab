"""What the language server tells a model of the other files of a project. All of the product that `context` needs."""

from pathlib import Path

from lsprotocol.types import Position, PositionEncodingKind, TextDocumentItem

from lsp_server.context import cut_excerpt
from lsp_server.documents import Document
from lsp_server.related import RelatedText
from lsp_server.settings import Settings


def tell(root: Path, path: str, text: str) -> str:
    """Returns what is told when the file at `path` in the project at `root` holds `text`, with the cursor at its end."""
    item = TextDocumentItem((root / path).as_uri(), Path(path).suffix[1:], 0, text)
    document = Document(item, PositionEncodingKind.Utf32)
    context = cut_excerpt(document, Position(text.count("\n"), 0), Settings()).context
    return RelatedText().add(context, document, ()).removeprefix(context.prefix)
