import pytest

from inference.errors import InvalidRequestError, ServerError, describe_failure, quote, to_public_error


def _fail(text: str) -> None:
    raise RuntimeError(text)


def _catch(text: str) -> RuntimeError:
    with pytest.raises(RuntimeError) as caught:
        _fail(text)
    return caught.value


def test_a_short_text_is_quoted_completely() -> None:
    assert quote("it's\n") == '"it\'s\\n"'


@pytest.mark.parametrize("character", ["a", "\x00", "😀"])
def test_a_long_text_is_quoted_in_part_with_its_length(character: str) -> None:
    quoted = quote(character * 2**20)

    assert len(quoted) < 400
    assert quoted.startswith(repr(character)[:-1])
    assert quoted.endswith("1048576 characters")


def test_a_failure_is_described_by_its_type_and_place_without_its_text() -> None:
    described = describe_failure(_catch("secret"))

    assert described.startswith("RuntimeError at ")
    assert "inference/test_errors.py:" in described
    assert described.endswith(" in _fail")
    assert "secret" not in described


def test_a_failure_in_a_deep_recursion_has_a_short_description() -> None:
    def recurse() -> None:
        recurse()

    with pytest.raises(RecursionError) as caught:
        recurse()

    assert len(describe_failure(caught.value)) < 3000


def test_a_failure_that_was_never_raised_can_be_described() -> None:
    assert describe_failure(RuntimeError("secret")) == "RuntimeError at an unknown place"


def test_our_own_error_is_reported_unchanged() -> None:
    log: list[str] = []
    error = InvalidRequestError("no")

    assert to_public_error(error, log.append) is error
    assert log == []


def test_a_foreign_error_is_logged_and_reported_without_its_text() -> None:
    log: list[str] = []

    told = to_public_error(_catch("secret"), log.append)

    assert (type(told), str(told)) == (
        ServerError,
        "the server failed on this request (RuntimeError); its log says where",
    )
    assert len(log) == 1
    assert "_fail" in log[0]
    assert "secret" not in log[0]
