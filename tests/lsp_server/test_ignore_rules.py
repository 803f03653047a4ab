"""Patterns, compared with `git check-ignore` on random paths."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lsp_server.ignore_rules import IgnoreRules, UnreadableRulesError
from tests.support.private_files import run_git

_PATHS = ["a", "b/a", "a.py", "a/b/a.py", "a/a/ab/b", "b.py", "ab/a", "ab/b.py", "B/É.py", "a b/#a", "b/b/b/b/!a"]
_names = st.sampled_from(["a", "b", "ab", "*", "a*", "?", "*.py", "[a-b]", "[!a]", "a.py", "é.py", "a b", "\\#a", "**"])
_patterns = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(_names, min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "/"]),
)


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository").resolve()
    run_git(folder, "init", "--quiet")
    return folder


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(_patterns, min_size=1, max_size=5))
@example(lines=["/a/", "!*.py"])
@example(lines=["a/**", "!a/b/"])
@example(lines=["*", "!*/", "!*.py"])
@example(lines=["/*", "!/a", "/a/*", "!/a/b"])
@example(lines=["a/**/"])
def test_a_path_is_excluded_where_git_ignores_it(lines: Sequence[str], top: Path) -> None:
    (top / ".gitignore").write_text("".join(f"{line}\n" for line in lines))
    run_git(top, "config", "core.ignorecase", "true")
    said = run_git(top, "check-ignore", "--no-index", "-z", "--stdin", data="\0".join(_PATHS).encode())
    ignored = {path for path in said.decode().split("\0") if path}
    rules = IgnoreRules(lines)
    assert {path for path in _PATHS if rules.find(path) is not None} >= ignored
    if not any(each.isupper() for line in lines for each in line):
        exact = {path for path in _PATHS if path.islower() and rules.find(path) is not None}
        assert exact == {path for path in ignored if path.islower()}


@pytest.mark.parametrize("line", ["", "   ", "# a", "/", "!", "a\\", "[", "a[b-"])
def test_a_line_that_can_match_nothing_is_no_pattern(line: str) -> None:
    rules = IgnoreRules([line])
    assert [path for path in _PATHS if rules.find(path)] == []
    assert rules.useless == ([line] if line.strip() and line[0] != "#" else [])


@pytest.mark.parametrize("line", ["[[:alpha:]]", "[z-a]"])
def test_a_line_that_is_not_understood_is_refused(line: str) -> None:
    with pytest.raises(UnreadableRulesError):
        IgnoreRules([line])


@pytest.mark.parametrize(
    ("line", "path"), [("*a" * 12 + "*b", "a" * 250), ("**/" + "/**/".join("abcdefgh"), "/".join("abcdefgx" * 12))]
)
def test_no_pattern_takes_long(line: str, path: str) -> None:
    assert IgnoreRules([line]).find(path) is None


def test_a_pattern_with_the_line_end_of_windows_is_the_same() -> None:
    rules = IgnoreRules(["a/\r"])
    assert [rules.find(path) is not None for path in ("a/b", "a")] == [True, False]


def test_without_regard_to_case_a_path_is_only_excluded_and_never_included() -> None:
    rules = IgnoreRules(["*.py", "!A.py"])
    assert {name: rules.find(name) is not None for name in ("a.py", "A.py", "B.PY")} == {
        "a.py": True,
        "A.py": False,
        "B.PY": True,
    }
