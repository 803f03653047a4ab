"""The errors of this package, and how they are described in messages and logs.

MidtokenError
├── InvalidRequestError     the request is invalid; the message says what and why
├── ModelError              the model folder or a setting of the engine cannot be used
├── OverloadedError         the engine has no room; try again later
├── ServerError             the server refused, failed or stopped in the middle of an answer
│   ├── ServerUnreachableError   no server answers at the address
│   └── InferenceServerUnreachableError   it answers, but the server that has the model does not
└── LaunchError             the server could not be found or started
"""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)
ORT_TELEMETRY = "ORT_DISABLE_TELEMETRY"  # a variable of onnxruntime
_PACKAGES = ("inference", "lsp_server", "midtoken", "trie_cache")
_MAX_QUOTED = 80
_NUM_NAMED = 3
_MAX_CALLS = 20  # an infinite recursion has a thousand


class MidtokenError(Exception):
    """Base class of the errors that this package raises on purpose. The message is meant for users.

    Of each class: its status in HTTP, the beginning of its text on a gRPC stream, which transmits only the text, and
    the name of its code in Triton.
    """

    status, prefix, code = 500, "", "INTERNAL"

    @property
    def stream_text(self) -> str:
        """Its text on a gRPC stream."""
        return f"{self.prefix}{self}"


class InvalidRequestError(MidtokenError):
    """The request is invalid. The message names the field and says what it should be."""

    status, prefix, code = 400, "invalid request: ", "INVALID_ARG"


class ModelError(MidtokenError):
    """The model folder or a setting of the engine cannot be used."""


class OverloadedError(MidtokenError):
    """The engine has no room for another request at the moment."""

    status, prefix, code = 503, "overloaded: ", "UNAVAILABLE"

    def __init__(self, text: str, reason: str = "memory") -> None:
        """`reason`: what has no room, in one word for metrics."""
        super().__init__(text)
        self.reason = reason


class ServerError(MidtokenError):
    """The server refused, failed or stopped in the middle of an answer."""


class ServerUnreachableError(ServerError):
    """No server answers at the address."""

    status = 503


class InferenceServerUnreachableError(ServerError):
    """The server of an `--engine` does not answer. The one in front of it does: the connection to that is not lost."""

    status, prefix, code = 503, "engine unreachable: ", "UNAVAILABLE"


class LaunchError(MidtokenError):
    """The server could not be found or started. The message says what to install or which log to read."""


def quote(text: str) -> str:
    """The text in quotes, for an error message. A long text is shortened to its beginning and its length."""
    if len(text) <= _MAX_QUOTED:
        return repr(text)
    return f"{text[:_MAX_QUOTED]!r} and so on, {len(text)} characters"


def name_some(names: Sequence[str]) -> str:
    """The first names, for an error message, and how many more there are."""
    more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
    return ", ".join(names[:_NUM_NAMED]) + more


def check_ranges(values: object, ranges: Mapping[str, tuple[float, float]], error: type[MidtokenError]) -> None:
    """Raises the error for the first of the named fields that is out of its range, NaN included. None passes."""
    for name, (low, high) in ranges.items():
        value = getattr(values, name)
        if value is not None and not low <= value <= high:
            raise error(f"{name} must be between {low} and {high}, not {value!s:.{_MAX_QUOTED}}")


def refuse(error: type[MidtokenError], reasons: Mapping[str, object]) -> None:
    """Raises the error with the first reason that holds. No two reasons are the same text."""
    for reason, holds in reasons.items():
        if holds:
            raise error(reason)


def silence_libraries() -> None:
    """To be called where a process starts: no log has text of a request or of another server; no library calls home.

    What a library has to say is replaced by where it says it, and an exception that nobody caught by its description.
    pygls says nothing: the editor is told what has failed, by a reply or a message. gRPC says nothing either: it would
    have a line for each connection of a stranger that fails.

    The environment is changed here, before there are threads: one that reads it meanwhile in C may crash.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ[ORT_TELEMETRY] = "1"
    logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
    if logging.lastResort is not None:  # the handler of all that have no other
        logging.lastResort.setFormatter(_Formatter())
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        if getattr(module, name) is getattr(module, f"__{name}__"):  # otherwise a test watches
            setattr(module, name, _log_uncaught)


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Ours are written so that they have no such text."""
        is_ours = record.name.partition(".")[0] in _PACKAGES
        error = record.exc_info[1] if record.exc_info else None
        place = f"{record.levelname.lower()} of {record.name} at {record.filename}:{record.lineno}"
        return (record.getMessage() if is_ours else place) + (f": {describe_failure(error)}" if error else "")


def _log_uncaught(found: Any, *exception: Any) -> None:
    """`found`: has the exception. `sys.excepthook` passes its type instead, then the exception and its traceback."""
    _log.error("%s", describe_failure(exception[0] if exception else found.exc_value))


def as_failure(error: BaseException) -> BaseException:
    """The error, unless it ends the process. A panic of a library in Rust is no Exception, and fails one request."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    return error


def describe_failure(error: BaseException) -> str:
    """The error's type and the calls that led to it, innermost last.

    The error's message is omitted: it may contain source text, which must not be logged.
    """
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    calls = [f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno} in {frame.name}" for frame in frames]
    return f"{type(error).__name__} at {' > '.join(calls[-_MAX_CALLS:]) or 'an unknown place'}"


def to_public_error(error: BaseException, log: Callable[[str], object]) -> MidtokenError:
    """The error for the client. A foreign error is logged without its message and replaced by a ServerError."""
    if isinstance(error, MidtokenError):
        return error
    log(f"a request failed with {describe_failure(error)}")
    return ServerError(f"the server failed on this request ({type(error).__name__}); its log says where")


def tell_failure(fail: Callable[[MidtokenError], object], error: MidtokenError, log: Callable[[str], object]) -> None:
    """Hands the error to a sink's `fail`. A sink that raises must not affect other requests."""
    try:
        fail(error)
    except BaseException as raised:
        log(f"a sink raised in fail(): {describe_failure(raised)}")
