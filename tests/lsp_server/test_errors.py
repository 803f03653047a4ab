"""The messages of the errors that the user sees."""

import errno

from lsp_server.errors import UnexpectedError, to_midtoken_error


def catch(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_defect_is_reported_with_its_location_and_without_its_text() -> None:
    text = str(UnexpectedError(catch(ValueError("secret"))))
    assert text.startswith(f"unexpected ValueError at {__file__}:")
    assert text.endswith("; please report it")
    assert "secret" not in text


def test_a_defect_that_was_never_raised_has_no_location() -> None:
    assert str(UnexpectedError(ValueError("secret"))) == "unexpected ValueError; please report it"


def test_a_system_error_outside_connecting_is_a_defect() -> None:
    assert isinstance(to_midtoken_error(OSError(errno.EACCES, "Permission denied")), UnexpectedError)
