"""What a file declares and imports."""

import pytest

from lsp_server.project import declarations
from lsp_server.project.declarations import Import, Summary, summarize
from lsp_server.project.grammar import load_grammar


def _summarize(language: str, text: str) -> Summary:
    return summarize(text.encode(), load_grammar(language))


def test_what_stands_in_very_many_others_is_left_out() -> None:
    def nest(depth: int) -> list[str]:
        found = _summarize("cpp", "namespace a {\n" * depth + "struct Inner {};\n" + "}" * depth)
        return [each.name for each in found.declarations if each.name == "Inner"]

    assert [nest(10), nest(40)] == [["Inner"], []]


def test_a_text_that_is_no_code_has_no_declarations() -> None:
    """Tree-sitter needs a minute to find what 300,000 brackets declare, and stops all threads meanwhile."""
    assert _summarize("c", "int known(void);\n" + "(" * 100).declarations != ()
    assert _summarize("c", "int known(void);\n" + "(" * 15_000) == Summary()


def test_a_text_that_takes_too_many_steps_has_no_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "_MAX_PARSER_STEPS", 2)
    assert _summarize("python", "def long(): ...\n" * 100) == Summary()
    assert [each.name for each in _summarize("python", "def short(): ...\n").declarations] == ["short"]


def test_a_use_of_rust_with_very_many_braces_is_read_as_one_path() -> None:
    found = _summarize("rust", "use a::{b, c::{d}};\nuse " + "e::{" * 900 + "f" + "}" * 900 + ";\n").imports
    assert found[:2] == (Import("a::b"), Import("a::c::d"))
    assert len(found) == 3
