"""The placeholder of secrets is not suggested."""

import pytest

from lsp_server.filters.placeholders import cut_at_placeholder
from lsp_server.text.context import Context


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('password = "REDACTED"', "password = "),
        ('"REDACTED"', ""),
        ("f(x)\ntoken = REDACTED\ny", "f(x)\ntoken = "),
        ('x = "redacted"', 'x = "redacted"'),
    ],
)
def test_the_text_ends_before_the_placeholder(text: str, kept: str) -> None:
    assert cut_at_placeholder(text, Context("a = 1\n", "")) == kept


@pytest.mark.parametrize("context", [Context("REDACTED = 1\nx = ", ""), Context("x = ", "\nREDACTED")])
def test_a_word_of_the_file_is_kept(context: Context) -> None:
    assert cut_at_placeholder("REDACTED", context) == "REDACTED"
