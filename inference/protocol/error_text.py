"""An error as the text of a response, and back. Triton's streams carry no error codes."""

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError

_INVALID = "invalid request: "
_OVERLOADED = "overloaded: "


def error_to_text(error: MidtokenError) -> str:
    """The error as a person reads it in a response. Streams carry no error codes, so its kind stands in the text."""
    if isinstance(error, InvalidRequestError):
        return f"{_INVALID}{error}"
    if isinstance(error, OverloadedError):
        return f"{_OVERLOADED}{error}"
    return str(error)


def error_from_text(text: str) -> MidtokenError:
    """The error that `error_to_text` wrote; any other text, as Triton's own, is a ServerError."""
    if text.startswith(_INVALID):
        return InvalidRequestError(text.removeprefix(_INVALID))
    if text.startswith(_OVERLOADED):
        return OverloadedError(text.removeprefix(_OVERLOADED))
    return ServerError(text)
