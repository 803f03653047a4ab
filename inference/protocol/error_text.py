"""Errors on the wire: a text that begins with the kind of error, and Triton's code for it.

A gRPC stream transmits only the text, so the client reads the kind from it.
"""

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError

# kind -> the beginning of the text, the name of the code in pb_utils.TritonError
_KINDS: dict[type[MidtokenError], tuple[str, str]] = {
    InvalidRequestError: ("invalid request: ", "INVALID_ARG"),
    OverloadedError: ("overloaded: ", "UNAVAILABLE"),
}
_OTHER_CODE = "INTERNAL"


def error_to_text(error: MidtokenError) -> str:
    """The error as the text of a response."""
    beginnings = [beginning for kind, (beginning, _) in _KINDS.items() if isinstance(error, kind)]
    return "".join(beginnings) + str(error)


def find_triton_code(error: MidtokenError) -> str:
    """The name of the error's code in Triton's `TritonError`."""
    return next((code for kind, (_, code) in _KINDS.items() if isinstance(error, kind)), _OTHER_CODE)


def error_from_text(text: str) -> MidtokenError:
    """The error for a text of `error_to_text`. Any other text, such as a message of Triton, gives a ServerError."""
    for kind, (beginning, _) in _KINDS.items():
        if text.startswith(beginning):
            return kind(text.removeprefix(beginning))
    return ServerError(text)
