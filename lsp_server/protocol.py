"""pygls's protocol, without a copy of the documents' text, and with a reply to what it cannot read."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from cattrs import Converter
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidRequest, JsonRpcServerNotInitialized
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, default_converter, lsp_method

_SYNCHRONIZATION = (
    *(types.TEXT_DOCUMENT_DID_OPEN, types.TEXT_DOCUMENT_DID_CHANGE),
    *(types.NOTEBOOK_DOCUMENT_DID_OPEN, types.NOTEBOOK_DOCUMENT_DID_CHANGE),
)
# pygls's own handlers of these first update its copy of the text (see lsp_server.documents), never release the future
# of a notification, and raise an exception if a shutdown cancels what follows `initialized`.
_OURS = (
    *(*_SYNCHRONIZATION, types.TEXT_DOCUMENT_DID_CLOSE, types.NOTEBOOK_DOCUMENT_DID_CLOSE),
    types.INITIALIZED,
)

_log = logging.getLogger(__name__)


class MidtokenProtocol(LanguageServerProtocol):
    """pygls's protocol, which refuses a request of another form than LSP's, and notices an edit of such a form."""

    def __init__(self, server: LanguageServer, converter: Converter) -> None:
        super().__init__(server, converter)
        # Called for an edit that cannot be read. Without a URI it may concern any document.
        self.mark_out_of_sync: Callable[[str | None], None] = lambda _: None
        self.has_exited = threading.Event()
        self.exit_status = 1  # of the process
        for method in _OURS:
            del self.fm.builtin_features[method]

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: Any) -> None:  # type: ignore[override]
        """Notes that the editor has sent `exit`. pygls's own method ends the process at once."""
        self.exit_status = 0 if self._shutdown else 1
        self.has_exited.set()

    def structure_message(self, data: dict[str, Any]) -> dict[str, Any]:
        """Returns it as it is. pygls calls this for each JSON object in a message; `handle_message` has all of it."""
        return data

    def handle_message(self, message: Any) -> None:
        """Handles a message, which is any JSON."""
        method = message.get("method")
        is_out_of_order = (method == types.INITIALIZE) == (self._workspace is not None)
        if method not in (None, types.EXIT) and (self._shutdown or is_out_of_order):  # LSP, initialize and shutdown
            if "id" in message:
                error = JsonRpcServerNotInitialized() if self._workspace is None else JsonRpcInvalidRequest()
                self._send_response(message["id"], error=error.to_response_error())
            return
        if method == types.WORKSPACE_DID_CHANGE_CONFIGURATION:  # some editors omit `settings` if they have none
            message = message | {"params": {"settings": None} | (message.get("params") or {})}
        try:
            read = super().structure_message(message)
        except JsonRpcException as error:
            _log.warning("midtoken: cannot read a message %s", method or "that is a response")
            if method is None:
                self._handle_response(message.get("id"), error=error.to_response_error())
            elif "id" in message:
                self._send_response(message["id"], error=error.to_response_error())
            elif method in _SYNCHRONIZATION:
                self.mark_out_of_sync(_find_uri(message))
        else:
            if isinstance(read, types.InitializeRequest) and read.params.capabilities.general is not None:
                read.params.capabilities.general.position_encodings = None  # each client has UTF-16
            super().handle_message(read)


class MessageReader(asyncio.StreamReader):
    """What pygls reads messages from. Its own reader would change threads three times for each."""

    async def readline(self) -> bytes:
        """Returns the next line, when what the last message has started is under way: it must see the text as it is."""
        await asyncio.sleep(0)
        return await super().readline()

    def read_descriptor(self, descriptor: int) -> None:
        """Reads a pipe, a terminal, a socket or a file in a thread, which ends with the process."""
        arguments = descriptor, asyncio.get_running_loop()
        threading.Thread(target=self._read_descriptor, args=arguments, name="midtoken-stdin", daemon=True).start()

    def _read_descriptor(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(OSError):  # what cannot be read has ended
            while data := os.read(descriptor, 2**16):
                loop.call_soon_threadsafe(self.feed_data, data)
        loop.call_soon_threadsafe(self.feed_eof)


@cache  # a new one would compile a function for each form of message again
def build_converter() -> Converter:
    """Returns pygls's converter, which also refuses what is not a text in place of one: null is not the text "None"."""
    converter: Converter = default_converter()  # type: ignore[no-untyped-call]
    converter.register_structure_hook(str, _read_text)
    return converter


def _read_text(value: Any, kind: type[str]) -> str:  # `kind` is also an enumeration of texts
    if not isinstance(value, str):
        raise TypeError("not a text")
    return kind(value)


def _find_uri(message: dict[str, Any]) -> str | None:
    """Returns the URI of the document that a message names, if that can be read."""
    match message:
        case {"params": {"textDocument": {"uri": str(uri)}}}:
            return uri
    return None
