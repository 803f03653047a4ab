"""What the errors say to a person."""

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


def test_a_defect_is_named_with_its_place_and_without_its_text() -> None:
    text = str(UnexpectedError(catch(ValueError("secret"))))
    assert text.startswith(f"unexpected ValueError at {__file__}:")
    assert text.endswith("; please report it")
    assert "secret" not in text


def test_a_defect_that_was_never_raised_has_no_place() -> None:
    assert str(UnexpectedError(ValueError("secret"))) == "unexpected ValueError; please report it"


def test_our_own_errors_stay_as_they_are() -> None:
    error = ServerError("the server failed")
    assert to_midtoken_error(error) is error
    assert to_connect_error(error) is error


def test_an_error_of_the_system_while_connecting_says_what_and_where() -> None:
    error = OSError(errno.EACCES, os.strerror(errno.EACCES), "/state/start.lock")
    text = "cannot connect to the completion server: Permission denied (/state/start.lock)"
    assert str(to_connect_error(error)) == text


@pytest.mark.parametrize("error", [OSError("secret"), TimeoutError("secret"), KeyError("secret")])
def test_an_error_without_the_system_s_text_is_a_defect(error: Exception) -> None:
    assert isinstance(to_connect_error(catch(error)), UnexpectedError)


def test_elsewhere_an_error_of_the_system_is_a_defect() -> None:
    assert isinstance(to_midtoken_error(OSError(errno.EACCES, "Permission denied")), UnexpectedError)
