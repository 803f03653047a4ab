"""Why a request has no suggestion: the reason, and which documents and places have none."""

from dataclasses import dataclass, replace
from enum import StrEnum

from inference.errors import MidtokenError, OverloadedError, ServerUnreachableError
from inference.likely_text import is_word
from lsp_server.context import Context
from lsp_server.documents import Document, Edit, Place
from lsp_server.errors import (
    ExcludedError,
    InSecretError,
    LineEndsError,
    OutOfSyncError,
    TooLargeError,
    UnexpectedError,
)
from lsp_server.exclusion import UNKNOWN
from lsp_server.languages import find_language
from lsp_server.settings import ANY_LANGUAGE, Settings


class Reason(StrEnum):
    """The code. It stands in the log for every request without a suggestion."""

    # The document gets no suggestions at all.
    DISABLED = "disabled"  # by the setting `enabled`
    EXCLUDED = "excluded"  # by a rule on what may leave the process
    TOO_LARGE = "too_large"
    UNKNOWN_LINE_ENDS = "unknown_line_ends"  # a carriage return may be text or end a line
    OTHER_LANGUAGE = "other_language"  # the model does not know it
    OUT_OF_SYNC = "out_of_sync"  # the editor sent an edit that could not be applied
    # It is not known yet whether the document gets some.
    UNKNOWN_RULES = "unknown_rules"
    # The completion server did not answer.
    STARTING = "starting"
    UNREACHABLE = "unreachable"
    BUSY = "busy"
    REFUSED = "refused"  # it answered with another error
    FAILED = "failed"  # a defect of the language server
    # The request was not sent, or is obsolete.
    SUPERSEDED = "superseded"  # by an edit, by a newer request, or because the editor cancelled it
    IN_SECRET = "in_secret"  # the text around the cursor may not be sent
    # A suggestion would disturb.
    INSIDE_WORD = "inside_word"  # the cursor was moved into a word
    PASTED = "pasted"  # the last edit inserted much text that was not suggested
    # There is nothing to insert.
    NOTHING = "nothing"  # the model ends the text here
    FILTERED = "filtered"  # what the model wrote is not worth showing


# Those that hold for every place in the document.
DOCUMENT_REASONS = frozenset(
    {
        *(Reason.DISABLED, Reason.EXCLUDED, Reason.TOO_LARGE),
        *(Reason.UNKNOWN_LINE_ENDS, Reason.OTHER_LANGUAGE, Reason.OUT_OF_SYNC),
    }
)
# Those for which an older suggestion should not stay visible. For the others, nothing is known about the text at hand.
HIDING_REASONS = DOCUMENT_REASONS - {Reason.OUT_OF_SYNC} | {
    *(Reason.INSIDE_WORD, Reason.PASTED, Reason.IN_SECRET, Reason.NOTHING, Reason.FILTERED)
}


@dataclass(frozen=True, slots=True)
class NoSuggestion:
    """No suggestion. The message is one sentence, and empty where nobody can do anything about it."""

    reason: Reason
    message: str = ""


SUPERSEDED = NoSuggestion(Reason.SUPERSEDED)


def to_no_suggestion(error: MidtokenError) -> NoSuggestion:
    """Returns why an error leaves a request without a suggestion."""
    reason = next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), Reason.REFUSED)
    return NoSuggestion(reason, str(error))


_REASONS = {
    OutOfSyncError: Reason.OUT_OF_SYNC,
    TooLargeError: Reason.TOO_LARGE,
    LineEndsError: Reason.UNKNOWN_LINE_ENDS,
    UnexpectedError: Reason.FAILED,
    ExcludedError: Reason.EXCLUDED,
    InSecretError: Reason.IN_SECRET,
    OverloadedError: Reason.BUSY,
    ServerUnreachableError: Reason.UNREACHABLE,
}


def find_obstacle(
    document: Document, settings: Settings, model_languages: tuple[str, ...] | None, exclusion: str | None
) -> NoSuggestion | None:
    """Returns why a document gets no suggestions; None if it gets them.

    `model_languages`: None if the model knows any. `exclusion`: why nothing of the document may be sent, or UNKNOWN.
    """
    if not settings.enabled:
        return NoSuggestion(Reason.DISABLED, "the setting enabled is false")
    if document.problem is not None:
        return to_no_suggestion(document.problem)
    if exclusion is not None:
        found = to_no_suggestion(ExcludedError(exclusion, document.uri))
        return replace(found, reason=Reason.UNKNOWN_RULES) if exclusion == UNKNOWN else found
    languages = model_languages if settings.languages is None else settings.languages
    if languages is None or ANY_LANGUAGE in languages or document.language in map(find_language, languages):
        return None
    name = document.language_id or "files without a language"
    if settings.languages is not None:
        return NoSuggestion(Reason.OTHER_LANGUAGE, f"the setting languages does not list {name}")
    return NoSuggestion(
        Reason.OTHER_LANGUAGE,
        f"the model knows only {', '.join(languages)}, so there are no suggestions for {name}; choose another "
        "(midtoken models lists some), or list the languages that you want anyway in the setting languages",
    )


_MAX_TYPED_CHARS = 40  # more in one edit are not typed


def find_disturbance(document: Document, was_pasted: bool, place: Place, context: Context) -> NoSuggestion | None:
    """Returns why an automatic suggestion would disturb at `place`; None if it does not.

    `was_pasted`: what the last edit inserted (see `is_paste`).
    """
    is_edited = document.was_edited_at(place.position)
    around = context.line_before[-1:], context.line_after[:1]
    if all(char and is_word(char) for char in around) and not is_edited:
        return NoSuggestion(Reason.INSIDE_WORD)
    if was_pasted and is_edited:
        return NoSuggestion(Reason.PASTED)
    return None


def is_paste(edit: Edit | None, offered: frozenset[str]) -> bool:
    """True if an edit inserts more than a person types at once, or an editor for them.

    `offered`: the texts that were suggested last. An edit that inserts one of them, or a part, is an acceptance.
    """
    if edit is None or (len(edit.text) <= _MAX_TYPED_CHARS and "\n" not in edit.text.strip()):
        return False
    inserted = edit.text.replace("\r\n", "\n").replace("\r", "\n")
    return not any(inserted in each for each in offered)
