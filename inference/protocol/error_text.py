"""Errors as the text of a response. Triton's streams carry no error codes, so the text begins with the error's kind."""

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError

_INVALID = "invalid request: "
_OVERLOADED = "overloaded: "


def error_to_text(error: MidtokenError) -> str:
    """The error as the text of a response."""
    if isinstance(error, InvalidRequestError):
        return f"{_INVALID}{error}"
    if isinstance(error, OverloadedError):
        return f"{_OVERLOADED}{error}"
    return str(error)


def error_from_text(text: str) -> MidtokenError:
    """The error whose text `error_to_text` wrote. Any other text, such as Triton's own, is a ServerError."""
    if text.startswith(_INVALID):
        return InvalidRequestError(text.removeprefix(_INVALID))
    if text.startswith(_OVERLOADED):
        return OverloadedError(text.removeprefix(_OVERLOADED))
    return ServerError(text)
