"""The messages of the errors that the user sees."""

from lsp_server.errors import UnexpectedError


def test_a_defect_that_was_never_raised_has_no_location_and_no_text() -> None:
    assert str(UnexpectedError(ValueError("secret"))) == "unexpected ValueError at an unknown place; please report it"
