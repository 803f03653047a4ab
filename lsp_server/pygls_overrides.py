"""Changes to pygls's behaviour: no copy of the text, any JSON as settings, no source text in its log."""

import logging
from functools import lru_cache
from typing import Any

from lsprotocol import types
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method


class MidtokenProtocol(LanguageServerProtocol):
    """pygls's protocol without its copy of the documents' text (see lsp_server.documents).

    Each text document method only calls the server's feature. pygls's own methods update the copy first. They are
    plain functions, because pygls never releases the future of a notification that a generator handles.
    """

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        """LSP textDocument/didOpen."""
        self.fm.features[types.TEXT_DOCUMENT_DID_OPEN](params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        """LSP textDocument/didChange."""
        self.fm.features[types.TEXT_DOCUMENT_DID_CHANGE](params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        """LSP textDocument/didClose."""
        self.fm.features[types.TEXT_DOCUMENT_DID_CLOSE](params)

    @lru_cache  # noqa: B019 (pygls declares it so; there is one protocol a process)
    def get_result_type(self, method: str) -> type[Any] | None:
        """Returns the type of a request's result; None, which means any JSON, for workspace/configuration.

        Some clients answer that request with null or an object. pygls would reject such an answer, and the request
        would never end.
        """
        return None if method == types.WORKSPACE_CONFIGURATION else super().get_result_type(method)


def keep_text_out_of_logs() -> None:
    """Keeps message bodies and tracebacks out of pygls's logs, because both may contain source text."""
    logging.getLogger("pygls").setLevel(logging.WARNING)  # at INFO it logs every body
    for name in ("pygls.protocol.json_rpc", "pygls.protocol.language_server", "pygls.io_"):
        logging.getLogger(name).addFilter(_drop_arguments)


def _drop_arguments(record: logging.LogRecord) -> bool:
    record.args, record.exc_info, record.exc_text = (), None, None
    return True
