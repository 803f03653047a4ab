"""The messages of the errors that the user sees."""

import errno
import os

import pytest

from inference.errors import ServerError
from lsp_server.errors import UnexpectedError, to_connect_error, to_midtoken_error


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


def test_our_own_errors_stay_unchanged() -> None:
    error = ServerError("the server failed")
    assert to_midtoken_error(error) is error
    assert to_connect_error(error) is error


def test_a_system_error_while_connecting_says_what_failed_and_where() -> None:
    error = OSError(errno.EACCES, os.strerror(errno.EACCES), "/state/start.lock")
    text = "cannot connect to the completion server: Permission denied (/state/start.lock)"
    assert str(to_connect_error(error)) == text


@pytest.mark.parametrize("error", [OSError("secret"), TimeoutError("secret"), KeyError("secret")])
def test_a_system_error_without_a_text_is_a_defect(error: Exception) -> None:
    assert isinstance(to_connect_error(catch(error)), UnexpectedError)


def test_a_system_error_outside_connecting_is_a_defect() -> None:
    assert isinstance(to_midtoken_error(OSError(errno.EACCES, "Permission denied")), UnexpectedError)
