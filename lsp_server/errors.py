"""What can go wrong between an editor and a completion request.

MidtokenError (inference.errors)
├── EditorError               the editor said something that cannot be followed
│   ├── UnknownDocumentError  a document that was never opened, or is closed
│   └── OutOfStepError        the text is no longer known; the document has to be opened again
└── UnexpectedError           a defect of the language server
"""

import traceback

from inference.errors import MidtokenError


class EditorError(MidtokenError):
    """The editor said something that cannot be followed."""


class UnknownDocumentError(EditorError):
    """The document was never opened, or is closed already."""


class OutOfStepError(EditorError):
    """An edit could not be applied, so the text is unknown until the editor sends all of it again."""


class UnexpectedError(MidtokenError):
    """A defect of the language server: what was raised and where, without any of the person's text."""

    def __init__(self, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        super().__init__(f"unexpected {type(error).__name__}{place}; please report it")
