"""Why a request has no suggestion: a code for the log and the status, and a sentence for the user."""

from dataclasses import dataclass
from enum import StrEnum

from inference.errors import MidtokenError, OverloadedError, ServerUnreachableError
from lsp_server.errors import OutOfStepError, TooLargeError, UnexpectedError


class Reason(StrEnum):
    """The code. It stands in the log for every request without a suggestion."""

    # The document gets no suggestions at all.
    DISABLED = "disabled"  # by the setting `enabled`
    EXCLUDED = "excluded"  # by a rule on what may leave the process
    TOO_LARGE = "too_large"
    OTHER_LANGUAGE = "other_language"  # the model does not know it
    OUT_OF_STEP = "out_of_step"  # the editor sent an edit that could not be applied
    # The completion server did not answer.
    STARTING = "starting"
    UNREACHABLE = "unreachable"
    BUSY = "busy"
    REFUSED = "refused"  # it answered with another error
    FAILED = "failed"  # a defect of the language server
    # The request is obsolete.
    SUPERSEDED = "superseded"  # by an edit, by a newer request, or because the editor cancelled it
    IN_SECRET = "in_secret"  # the text around the cursor may not be sent
    # A suggestion would disturb.
    INSIDE_WORD = "inside_word"  # the cursor was moved into a word
    PASTED = "pasted"  # the last edit inserted much text that was not suggested
    # There is nothing to insert.
    NOTHING = "nothing"  # the model ends the text here
    FILTERED = "filtered"  # what the model wrote is not worth showing

    @property
    def concerns_document(self) -> bool:
        """True if the reason holds for every place in the document."""
        return self in _DOCUMENT_REASONS

    @property
    def hides_suggestion(self) -> bool:
        """True if an older suggestion should not stay visible. Otherwise nothing is known about the text at hand."""
        return self in _HIDING_REASONS


_DOCUMENT_REASONS = (Reason.DISABLED, Reason.EXCLUDED, Reason.TOO_LARGE, Reason.OTHER_LANGUAGE, Reason.OUT_OF_STEP)
_HIDING_REASONS = (
    Reason.DISABLED,
    Reason.EXCLUDED,
    Reason.TOO_LARGE,
    Reason.OTHER_LANGUAGE,
    Reason.IN_SECRET,
    Reason.INSIDE_WORD,
    Reason.PASTED,
    Reason.NOTHING,
    Reason.FILTERED,
)


@dataclass(frozen=True, slots=True)
class Silence:
    """No suggestion. The message is one sentence, and empty where nobody can do anything about it."""

    reason: Reason
    message: str = ""


SUPERSEDED = Silence(Reason.SUPERSEDED)


def to_silence(error: MidtokenError) -> Silence:
    """Returns the silence that an error causes."""
    return Silence(find_reason(error), str(error))


def find_reason(error: MidtokenError) -> Reason:
    """Returns the code of an error."""
    return next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), Reason.REFUSED)


_REASONS = {
    OutOfStepError: Reason.OUT_OF_STEP,
    TooLargeError: Reason.TOO_LARGE,
    UnexpectedError: Reason.FAILED,
    OverloadedError: Reason.BUSY,
    ServerUnreachableError: Reason.UNREACHABLE,
}
