"""The errors of the language server.

MidtokenError (inference.errors)
├── EditorError               the editor sent something that cannot be applied
│   ├── OutOfSyncError        the text is no longer known; the document has to be opened again
│   ├── TooLargeError         the document is too large for suggestions
│   └── LineEndsError         it is not known what ends a line of the document
├── NotSentError              the rules on what may be sent refuse a text
│   ├── ExcludedError         it is of an excluded document
│   └── InSecretError         the cursor is in a secret
└── UnexpectedError           a defect of the language server
"""

from inference.errors import MidtokenError, describe_failure


class EditorError(MidtokenError):
    """The editor sent something that cannot be applied."""


class OutOfSyncError(EditorError):
    """An edit could not be applied. The text is unknown until the editor sends all of it again."""


class TooLargeError(EditorError):
    """The document is too large. Its text is not kept, so there are no suggestions for it."""


class LineEndsError(EditorError):
    """What ends a line of the document for its editor is not known, so neither is what its positions mean."""


class NotSentError(MidtokenError):
    """The rules on what may be sent refuse a text."""


class ExcludedError(NotSentError):
    """The text is of an excluded document. The message names the rule."""

    def __init__(self, exclusion: str, uri: str) -> None:
        super().__init__(f"nothing of this file is sent: {exclusion}")
        self.uri = uri


class InSecretError(NotSentError):
    """The cursor is in a secret."""

    def __init__(self) -> None:
        super().__init__("the cursor is in a secret, which is not sent")


class UnexpectedError(MidtokenError):
    """A defect of the language server. The message says what was raised and where, and contains no source text."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"unexpected {describe_failure(error)}; please report it")


def to_midtoken_error(error: Exception) -> MidtokenError:
    """Returns `error` itself if it is a MidtokenError, else an UnexpectedError. Both can be shown to the user."""
    return error if isinstance(error, MidtokenError) else UnexpectedError(error)


def to_connect_error(error: Exception) -> MidtokenError:
    """Like `to_midtoken_error`, for errors while connecting: an error of the operating system is then no defect."""
    if isinstance(error, OSError) and error.strerror:
        place = f" ({error.filename})" if error.filename else ""
        return MidtokenError(f"cannot connect to the completion server: {error.strerror}{place}")
    return to_midtoken_error(error)
