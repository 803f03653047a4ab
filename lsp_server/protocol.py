"""Changes to pygls's behaviour: what is read strictly, when a request is refused, and no text in copies."""

import asyncio
import contextvars
import json
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from cattrs import Converter
from lsprotocol import types
from pygls.exceptions import (
    FeatureNotificationError,
    JsonRpcException,
    JsonRpcInternalError,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcServerNotInitialized,
)
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, default_converter

_SYNCHRONIZATION = (
    *(types.TEXT_DOCUMENT_DID_OPEN, types.TEXT_DOCUMENT_DID_CHANGE),
    *(types.NOTEBOOK_DOCUMENT_DID_OPEN, types.NOTEBOOK_DOCUMENT_DID_CHANGE),
)
# pygls's own handlers of these first update its copy of the text (see lsp_server.documents), never release the future
# of a notification, raise an exception if a shutdown cancels what follows `initialized`, and end the process for an
# `exit` that is a request.
_OURS = (
    *(*_SYNCHRONIZATION, types.TEXT_DOCUMENT_DID_CLOSE, types.NOTEBOOK_DOCUMENT_DID_CLOSE),
    *(types.INITIALIZED, types.EXIT),
)

_log = logging.getLogger(__name__)


class MidtokenProtocol(LanguageServerProtocol):
    """pygls's protocol, which replies to each request, and has no copy of the documents' text.

    A request that cannot be handled is answered with an error (LSP, ResponseError), of which the user is not told. A
    notification that cannot be handled is logged.
    """

    def __init__(self, server: LanguageServer, converter: Converter) -> None:
        super().__init__(server, converter)
        # Called for an edit that cannot be read. Without a URI it may concern any document.
        self.mark_out_of_sync: Callable[[str | None], None] = lambda _: None
        self.exit_status: int | None = None  # after `exit`, and when the editor reads no more
        self._is_initialized = False
        self._is_shut_down = False
        self._running: set[asyncio.Task[Any]] = set()  # of requests
        for method in _OURS:
            del self.fm.builtin_features[method]

    def owes_answer(self) -> bool:
        """True if a request is done whose answer is written in the next step of the event loop."""
        return any(each.done() for each in self._running)

    async def answer_all(self, within_s: float) -> None:
        """Waits until each request is answered, or for so long."""
        if self._running:
            await asyncio.wait(self._running, timeout=within_s)

    def receive(self, body: bytes) -> None:
        """Handles the message with this body, JSON as UTF-8. Never raises."""
        try:
            self._receive(body)
        except BrokenPipeError:
            self.exit_status = 1
        except Exception as error:  # the outermost handler: a defect must fail only this message
            self._server.report_server_error(error, FeatureNotificationError)

    def _receive(self, body: bytes) -> None:
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            _log.warning("midtoken: received a message that is not a JSON object")
            self.mark_out_of_sync(None)
        elif "method" not in message:
            self._receive_response(message)
        elif message["method"] == types.EXIT and "id" not in message:
            self.exit_status = 0 if self._is_shut_down else 1
        else:
            self._receive_call(message, str(message["method"]))

    def _receive_call(self, message: dict[str, Any], method: str) -> None:
        """Handles a request, which has an `id`, or a notification."""
        try:
            self._check_id(message)
            self._check_state(method)
            params = self._read_params(message, method)
        except JsonRpcException as error:
            self._refuse(message, method, error)
            return
        context = contextvars.copy_context()
        if "id" not in message:
            context.run(self._handle_notification, method, params)
            return
        self._is_initialized |= method == types.INITIALIZE
        self._is_shut_down |= method == types.SHUTDOWN
        context.run(self._handle_request, message["id"], method, params)
        if isinstance(task := self._request_futures.get(message["id"]), asyncio.Task):
            self._running.add(task)
            task.add_done_callback(self._running.discard)  # after pygls's own callback, which writes the answer

    def _refuse(self, message: dict[str, Any], method: str, error: JsonRpcException) -> None:
        if not _has_known_id(message):  # pygls would leave out the null that JSON-RPC demands
            refusal = {"code": error.code, "message": error.message}
            self._send_data({"jsonrpc": self.VERSION, "id": None, "error": refusal})
        elif "id" in message:
            self._send_response(message["id"], error=error.to_response_error())
        elif method in _SYNCHRONIZATION and isinstance(error, JsonRpcInvalidParams):
            self.mark_out_of_sync(_find_uri(message))

    def _receive_response(self, message: dict[str, Any]) -> None:
        """Hands on the result as JSON: only workspace/configuration has one, and LSP defines no form for it."""
        response_id = message.get("id")
        if self._is_shut_down or not isinstance(response_id, int | str):  # a shutdown cancels the server's requests
            return
        self._result_types.pop(response_id, None)
        failed = JsonRpcInternalError("the editor answered with an error").to_response_error()
        self._handle_response(response_id, message.get("result"), failed if "error" in message else None)

    def _check_id(self, message: dict[str, Any]) -> None:
        """Raises JsonRpcInvalidRequest. Of another `id`, pygls would log the parameters, or answer nothing."""
        if not _has_known_id(message):
            raise JsonRpcInvalidRequest("the id of a request must be a number or a text")

    def _check_state(self, method: str) -> None:
        """Raises JsonRpcException for what may not be sent before `initialize`, after it or after `shutdown`."""
        if self._is_shut_down:
            raise JsonRpcInvalidRequest("the server is shut down")
        if not self._is_initialized and method != types.INITIALIZE:
            raise JsonRpcServerNotInitialized("the first request must be initialize")
        if self._is_initialized and method == types.INITIALIZE:
            raise JsonRpcInvalidRequest("the server is initialized already")

    def _read_params(self, message: dict[str, Any], method: str) -> Any:
        """Returns the parameters in the form that LSP defines for the method; as JSON for a method that is not in LSP.

        Raises JsonRpcInvalidParams.
        """
        if method == types.WORKSPACE_DID_CHANGE_CONFIGURATION:
            message = message | {"params": _with_settings(message.get("params"))}
        form: Any = self.get_message_type(method)
        if form is None:
            return message.get("params")
        try:
            return self._converter.structure(message, form).params
        except Exception as error:  # cattrs and its hooks raise many kinds
            _log.warning("midtoken: cannot read a message %s (%s)", method, type(error).__name__)
            raise JsonRpcInvalidParams(f"the parameters of {method} do not have the form that LSP defines") from None


@cache  # a new one would compile a function for each form of message again
def build_strict_converter() -> Converter:
    """Returns pygls's converter, which also refuses texts and numbers of another type: null is not the text "None"."""
    converter: Converter = default_converter()  # type: ignore[no-untyped-call]
    converter.register_structure_hook(str, _read_text)
    converter.register_structure_hook(int, _read_number)
    converter.register_structure_hook(bool, lambda value, kind: kind(value))  # bool is a kind of int
    return converter


def _read_text(value: Any, kind: type[str]) -> str:  # `kind` is also an enumeration of texts
    if not isinstance(value, str):
        raise TypeError("not a text")
    return kind(value)


def _read_number(value: Any, kind: type[int]) -> int:
    # Lua and JavaScript have one type of number, so 3.0 is a whole number too.
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        raise TypeError("not a whole number")
    return kind(int(value))


def _with_settings(params: Any) -> dict[str, Any]:
    """Some editors send no `settings` when they have none. It then is null."""
    return {"settings": params.get("settings") if isinstance(params, dict) else None}


def _has_known_id(message: dict[str, Any]) -> bool:
    return isinstance(message.get("id", 0), int | float | str)


def _find_uri(message: dict[str, Any]) -> str | None:
    """Returns the URI of the document that a message names, if that can be read."""
    match message:
        case {"params": {"textDocument": {"uri": str(uri)}}}:
            return uri
    return None
