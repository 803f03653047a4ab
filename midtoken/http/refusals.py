"""What a client is told where the HTTP application refuses a request, and what the log has of it."""

import logging
import time
from typing import Any  # JSON has no types

from aiohttp import web

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    MidtokenError,
    OverloadedError,
    ServerUnreachableError,
)
from inference.protocol.arrays import error_to_response
from lsp_server.errors import to_midtoken_error
from midtoken.http.form import Form, to_json

_log = logging.getLogger(__name__)

_LOG_TIME = "%Y-%m-%d %H:%M:%S"
_TYPES = {
    403: "permission_error",
    499: "superseded_error",
    503: "unavailable_error",
}


class SupersededError(MidtokenError):
    """A newer request of the same client for what it edits has come."""


_STATUSES = (
    (InvalidRequestError, 400),
    (SupersededError, 499),  # not 409, after which the openai package asks again
    (OverloadedError, 503),
    (ServerUnreachableError, 503),
    (InferenceServerUnreachableError, 503),
)


def find_answer(request: web.Request, error: Exception) -> tuple[int, str]:
    """The status of an error, and what is told of it; of Triton's extension, with the kind of error, as Triton does."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    public = to_midtoken_error(error)
    return status, error_to_response(public)[0] if request.path.startswith("/v2/") else str(public)


def name_as_sent(form: type[Form], error: MidtokenError) -> str:
    """The sentence of an error, which begins with the field that is wrong, as the client calls that."""
    name, blank, what = str(error).partition(" ")
    return form.names.get(name, name) + blank + what


def _find_type(status: int) -> str:
    return _TYPES.get(status, "server_error" if status == 500 else "invalid_request_error")


def describe_refusal(request: web.Request, status: int, reason: str) -> dict[str, Any]:
    """What the client gets, in the form of its protocol."""
    if request.path.startswith(("/api/", "/v2/")):  # as clients of Ollama and Triton read it
        return {"error": reason}
    return {"error": {"message": reason, "type": _find_type(status), "param": None, "code": status}}


def note_refusal(request: web.Request, status: int) -> None:
    """Logs the status, but for a request that a newer one has replaced."""
    if status != 499:  # with each key
        note(request, f"status {status}, {_find_type(status)}")


def note(request: web.Request, what: str) -> None:
    """Logs it without anything that the client has written, which may be text."""
    path = request.path if request.match_info.http_exception is None else "another address"
    _log.warning("%s %s: %s", time.strftime(_LOG_TIME), path, what)


def refuse(request: web.Request, status: int, reason: str) -> web.Response:
    """The answer to a request that is refused, which is logged."""
    note_refusal(request, status)
    return web.json_response(describe_refusal(request, status, reason), status=status, dumps=to_json)
