"""Why a request has no suggestion, by the error that caused it."""

import pytest

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError, ServerUnreachableError
from lsp_server.errors import OutOfStepError, TooLargeError, UnexpectedError
from lsp_server.reporting.reasons import Reason, to_silence


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OverloadedError("full"), Reason.BUSY),
        (ServerUnreachableError("gone"), Reason.UNREACHABLE),
        (ServerError("broke off"), Reason.REFUSED),
        (InvalidRequestError("too long"), Reason.REFUSED),
        (OutOfStepError("lost"), Reason.OUT_OF_STEP),
        (TooLargeError("large"), Reason.TOO_LARGE),
        (UnexpectedError(ValueError()), Reason.FAILED),
    ],
)
def test_each_error_has_its_code(error: MidtokenError, reason: Reason) -> None:
    silence = to_silence(error)
    assert (silence.reason, silence.message) == (reason, str(error))


def test_a_reason_that_holds_for_the_document_also_hides_what_is_shown_unless_the_text_is_not_known() -> None:
    kept = {reason for reason in Reason if reason.concerns_document and not reason.hides_suggestion}
    assert kept == {Reason.OUT_OF_STEP}
