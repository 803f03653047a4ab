"""What of pygls is replaced: its mirror of the text, its way to report errors into the log."""

import logging
from collections.abc import Generator
from typing import Any

from lsprotocol import types
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method


class OwnTextProtocol(LanguageServerProtocol):
    """pygls's protocol without its mirror of the text, for which see lsp_server.documents.

    Each method only calls the server's feature, as pygls's own does after it has updated its mirror.
    """

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> Generator[Any, Any, None]:
        """LSP textDocument/didOpen."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_OPEN], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> Generator[Any, Any, None]:
        """LSP textDocument/didChange."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CHANGE], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> Generator[Any, Any, None]:
        """LSP textDocument/didClose."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CLOSE], (params,), None


def keep_text_out_of_logs() -> None:
    """Makes pygls log neither bodies of messages nor tracebacks, which hold a person's source text."""
    logging.getLogger("pygls").setLevel(logging.WARNING)  # at INFO it logs every body
    for name in ("pygls.protocol.json_rpc", "pygls.protocol.language_server", "pygls.io_"):
        logging.getLogger(name).addFilter(_drop_arguments)


def _drop_arguments(record: logging.LogRecord) -> bool:
    record.args, record.exc_info, record.exc_text = (), None, None
    return True
