"""The word that stands for a secret in the text that the model reads."""

from lsp_server.brackets import QUOTES
from lsp_server.privacy.redaction import PLACEHOLDER
from lsp_server.text.context import Context


def cut_at_placeholder(text: str, context: Context) -> str:
    """Cuts `text` before a copy of that word and its quote, unless the file itself has the word."""
    if PLACEHOLDER not in text or PLACEHOLDER in context.prefix or PLACEHOLDER in context.suffix:
        return text
    return text.partition(PLACEHOLDER)[0].rstrip(QUOTES)
