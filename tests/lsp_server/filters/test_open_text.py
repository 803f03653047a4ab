"""Where texts of several lines begin and end."""

import pytest

from lsp_server.filters.open_text import find_open_quotes


@pytest.mark.parametrize(
    ("code", "opened", "expected"),
    [
        ("x = 1", None, None),
        ('"""a', None, '"""'),
        ('"""a"""', None, None),
        ("'''a\"\"\"", None, "'''"),
        ('b"""', '"""', None),
        ('b""" + """', '"""', '"""'),
        ("'''", '"""', '"""'),
    ],
)
def test_the_open_quotes_are_found(code: str, opened: str | None, expected: str | None) -> None:
    assert find_open_quotes(code, opened) == expected
