"""What can go wrong between a request and its bytes, and how it is put into words.

MidtokenError
├── InvalidRequestError     the request is not one that can be answered; says what and why
├── ModelError              the model folder or a setting of the engine cannot be used
├── OverloadedError         the engine has no room; try again later
├── ServerError             the server refused, failed or broke off
│   └── ServerUnreachableError   nothing answers at the address
└── LaunchError             the server could not be found or started
"""

import traceback
from collections.abc import Callable
from pathlib import Path

_MAX_QUOTED = 80
_MAX_CALLS = 20  # a recursion without end has a thousand


class MidtokenError(Exception):
    """Base of every error this package raises on purpose. Its text is fit for a person to read."""


class InvalidRequestError(MidtokenError):
    """The request is not one that can be answered. The text names the field and what it should be."""


class ModelError(MidtokenError):
    """The model folder or a setting of the engine cannot be used."""


class OverloadedError(MidtokenError):
    """The engine has no room for another request now."""


class ServerError(MidtokenError):
    """The server refused, failed, or broke off in the middle of an answer."""


class ServerUnreachableError(ServerError):
    """Nothing answers at the server's address."""


class LaunchError(MidtokenError):
    """The server could not be found or started. The text says what to install or which log to read."""


def quote(text: str) -> str:
    """The text in quotes, as an error names it. Of a long text only the beginning, and how long it is."""
    if len(text) <= _MAX_QUOTED:
        return repr(text)
    return f"{text[:_MAX_QUOTED]!r} and so on, {len(text)} characters"


def describe_failure(error: BaseException) -> str:
    """The error's type and the calls that led to it, the innermost last.

    The error's own text is left out: it may hold source text, which no log may show.
    """
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    calls = [f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno} in {frame.name}" for frame in frames]
    return f"{type(error).__name__} at {' > '.join(calls[-_MAX_CALLS:]) or 'an unknown place'}"


def to_public_error(error: BaseException, log: Callable[[str], object]) -> MidtokenError:
    """The error that a client is told. One that is not ours is logged without its text; a ServerError replaces it."""
    if isinstance(error, MidtokenError):
        return error
    log(f"a request failed with {describe_failure(error)}")
    return ServerError(f"the server failed on this request ({type(error).__name__}); its log says where")
