"""Which names of the cursor's line are looked up."""

import pytest

from lsp_server.related.words import read_words


@pytest.mark.parametrize(
    ("line", "typed", "called"),
    [
        ("    x = Nod", "Nod", ""),
        ("x = ", "", ""),
        ("x1", "x1", ""),
        ("x = 1a", "a", ""),
        ("f(g(1), na", "na", "f"),
        ("f(g(", "", "g"),
        ("a.load (x, ", "", "load"),
        ("f(x)", "", ""),
        ("(x, ", "", ""),
        ("))f(", "", "f"),
        ("größe(", "", "größe"),
        ("", "", ""),
    ],
)
def test_the_typed_word_and_the_call_are_read(line: str, typed: str, called: str) -> None:
    words = read_words(line)
    assert (words.typed, words.called) == (typed, called)
