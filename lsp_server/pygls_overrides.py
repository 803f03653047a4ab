"""Where pygls is not used as it is: its mirror of the text, its type of one answer, the content of its log."""

import logging
from functools import lru_cache
from typing import Any

from lsprotocol import types
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method


class MidtokenProtocol(LanguageServerProtocol):
    """pygls's protocol without its mirror of the text (see lsp_server.documents).

    Each text document method calls the server's feature, which pygls does after it has updated its mirror. They are
    plain functions, since pygls keeps a future for ever of each notification that a generator handles.
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
        """The type of a request's result; None, which means any JSON, for workspace/configuration.

        Clients answer that one with null or an object too. pygls would reject such an answer and never end the request.
        """
        return None if method == types.WORKSPACE_CONFIGURATION else super().get_result_type(method)


def keep_text_out_of_logs() -> None:
    """Makes pygls log neither bodies of messages nor tracebacks, since both may hold source text."""
    logging.getLogger("pygls").setLevel(logging.WARNING)  # at INFO it logs every body
    for name in ("pygls.protocol.json_rpc", "pygls.protocol.language_server", "pygls.io_"):
        logging.getLogger(name).addFilter(_drop_arguments)


def _drop_arguments(record: logging.LogRecord) -> bool:
    record.args, record.exc_info, record.exc_text = (), None, None
    return True
