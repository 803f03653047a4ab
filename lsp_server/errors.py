"""What can go wrong between an editor and a completion request.

MidtokenError (inference.errors)
├── EditorError               the editor sent something that cannot be followed
│   ├── UnknownDocumentError  the document is not open
│   └── OutOfStepError        the text is no longer known; the document has to be opened again
├── ConnectError              the operating system refused something that connecting needs
└── UnexpectedError           a defect of the language server
"""

import traceback

from inference.errors import MidtokenError


class EditorError(MidtokenError):
    """The editor sent something that cannot be followed."""


class UnknownDocumentError(EditorError):
    """The document was never opened, or is closed already."""


class OutOfStepError(EditorError):
    """An edit could not be applied. The text is unknown until the editor sends all of it again."""


class ConnectError(MidtokenError):
    """The operating system refused something that connecting to the completion server needs."""

    def __init__(self, error: OSError) -> None:
        place = f" ({error.filename})" if error.filename else ""
        super().__init__(f"cannot connect to the completion server: {error.strerror}{place}")


class UnexpectedError(MidtokenError):
    """A defect of the language server. The text says what was raised and where, and holds no source text."""

    def __init__(self, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        super().__init__(f"unexpected {type(error).__name__}{place}; please report it")


def to_midtoken_error(error: Exception) -> MidtokenError:
    """`error` itself if it is ours, else an UnexpectedError; either can be shown to a person."""
    return error if isinstance(error, MidtokenError) else UnexpectedError(error)


def to_connect_error(error: Exception) -> MidtokenError:
    """As `to_midtoken_error`, for an error raised while connecting: there the system's own errors are no defects."""
    if isinstance(error, OSError) and error.strerror:
        return ConnectError(error)
    return to_midtoken_error(error)
