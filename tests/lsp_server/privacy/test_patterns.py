"""Patterns, compared with `git check-ignore` on random trees and patterns."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lsp_server.privacy.git_rules import GitRules
from lsp_server.privacy.paths import Disk
from lsp_server.privacy.patterns import (
    Patterns,
    RuleFiles,
    RuleList,
    UnreadableRulesError,
    find_rule,
    is_refused,
    list_folders,
    parse_pattern,
    to_latin1,
)
from tests.support.private_files import GIT_ENVIRONMENT, run_git

_names = st.sampled_from(
    ["a", "b", "ab", "a.py", "b.py", "é", "a b", "!a", "#a", "[a]", "a ", "-", "a\\b", "A", "B.Py", "É"]
)
_paths = st.lists(_names, min_size=1, max_size=4).map("/".join)
_pieces = st.sampled_from(
    [
        *(
            "a",
            "b",
            "ab",
            "A",
            "B",
            "é",
            "*",
            "**",
            "?",
            "/",
            "/",
            "/**/",
            "**/",
            "/**",
            "*.py",
            ".py",
            "!",
            "#",
            " ",
            "-",
        ),
        *("[ab]", "[!a]", "[^b]", "[a-c]", "[]a]", "[!]a]", "[a\\]]", "[[:alpha:]]", "[[:digit:]a]", "[", "]"),
        *(
            "[z-a]",
            "[a-]",
            "[A-C]",
            "[A]",
            "[!A]",
            "[[:lower:]]",
            "[[:no:]]",
            "[\\a-b]",
            "[/a]",
            "\t",
            "\\!",
            "\\#",
            "\\",
            "\\ ",
        ),
    ]
)
_patterns = st.lists(_pieces, min_size=1, max_size=5).map("".join).map(lambda text: text.replace("\n", ""))
_lines = st.lists(_patterns | st.builds("!{}".format, _patterns) | st.builds("{}/".format, _patterns), max_size=6)


@given(
    paths=st.lists(_paths, min_size=1, max_size=12),
    ignore_files=st.dictionaries(st.sampled_from(["", "a", "a/b", "b", "ab"]), _lines, max_size=4),
    own=_lines,
    ignores_case=st.booleans(),
)
@example(paths=["a/b/a.py"], ignore_files={"": ["a/**", "!a/b/"]}, own=[], ignores_case=False)
@example(paths=["a/b", "a/a.py"], ignore_files={"": ["a/"], "a": ["!b"]}, own=[], ignores_case=False)
@example(paths=["a/b"], ignore_files={"": ["*", "!*/"], "a": ["!b"]}, own=["b"], ignores_case=False)
@example(paths=["axb", "a/b", "a\\b"], ignore_files={"": ["a[!c]b"]}, own=[], ignores_case=False)
@example(paths=["a/a"], ignore_files={}, own=["a /"], ignores_case=False)
@example(paths=["b/a"], ignore_files={}, own=["[/a]"], ignores_case=False)
@example(paths=["a/a", "a/b/a", "ab/a"], ignore_files={}, own=["a**/a"], ignores_case=False)
@example(paths=["a/a", "a", "b/a/a"], ignore_files={}, own=["***/a", "!b/***/a", "a****/b"], ignores_case=False)
@example(paths=["a", "ab/a/b"], ignore_files={}, own=["a**/*"], ignores_case=False)
@example(paths=["ab/a/b"], ignore_files={}, own=["/a**", "!/ab"], ignores_case=False)
@example(
    paths=["a/a/b", "a/b"], ignore_files={}, own=["*", "!**/**/**/**/a/", "!a*b*", "**/**/**/**/b"], ignores_case=False
)
@example(paths=["aab/ab.py"], ignore_files={}, own=["a*a?/*[b]*y"], ignores_case=False)
@example(paths=["a/b/ab"], ignore_files={"": ["/*", "!/a", "/a/*", "!/a/b"]}, own=[], ignores_case=False)
@example(paths=["a", "A", "É"], ignore_files={"": ["[A]", "\\A", "é"]}, own=[], ignores_case=True)
@example(paths=["a", "B"], ignore_files={"": ["[A-C]", "![[:upper:]]"]}, own=[], ignores_case=True)
def test_a_path_is_ignored_where_git_ignores_it(
    paths: Sequence[str], ignore_files: Mapping[str, Sequence[str]], own: Sequence[str], ignores_case: bool
) -> None:
    if not ignores_case:
        paths, own = list(map(str.lower, paths)), list(map(str.lower, own))
        ignore_files = {folder: list(map(str.lower, lines)) for folder, lines in ignore_files.items()}
    with tempfile.TemporaryDirectory() as name:
        top = Path(os.path.realpath(name))
        run_git(top, "init", "--quiet")
        run_git(top, "config", "core.ignorecase", str(ignores_case))
        made = [path for path in paths if _make_file(top / path)]
        for folder, lines in ignore_files.items():
            if (top / folder).is_dir():
                (top / folder / ".gitignore").write_text("".join(f"{line}\n" for line in lines))
        (top / ".git" / "info" / "exclude").write_text("\n".join(own))
        asked = b"".join(os.fsencode(path) + b"\0" for path in made)
        said = run_git(top, "check-ignore", "--no-index", "-z", "--stdin", data=asked)
        expected = {os.fsdecode(path) for path in said.split(b"\0") if path}
        assert ignores_case or {path for path in made if _find_own_rule(top, path)} == expected
        found = GitRules(GIT_ENVIRONMENT).find_reasons([str(top / path) for path in made], Disk(RuleFiles()))
        assert set(found) == {str(top / path) for path in expected}


def _find_own_rule(top: Path, path: str) -> bool:
    files = RuleFiles()

    def find_lists(folder: str) -> list[RuleList]:
        lists = [files.read(f"{each}/.gitignore", each) for each in list_folders(folder, str(top))]
        return [*lists, files.read(str(top / ".git" / "info" / "exclude"), str(top))]

    return find_rule(str(top / path), str(top), find_lists) is not None


def _make_file(path: Path) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError:  # another path has a file where this one needs a folder, or the reverse
        return False
    return path.is_file()


@pytest.mark.parametrize("line", ["", "   ", "# a", "/", "!", "!/", "a\\", "[", "[[:no:]]", "a[b-"])
def test_a_line_that_can_match_nothing_is_no_pattern(line: str) -> None:
    assert parse_pattern(line) is None


@pytest.mark.parametrize(
    ("line", "path", "is_folder", "matches"),
    [
        ("a/\r", "a", True, True),  # a line end of Windows
        ("a/\r", "a", False, False),
        (to_latin1("[é]"), to_latin1("é"), False, False),  # a set is of bytes, and these are two
        # Without care, these take years.
        ("*a" * 12 + "*b", "a" * 250, False, False),
        ("**/" + "/**/".join("abcdefgh"), "/".join("abcdefgx" * 12), False, False),
    ],
)
def test_a_line_matches_a_path(line: str, path: str, is_folder: bool, matches: bool) -> None:
    found = Patterns([line]).find_deciding(path + "\0" * is_folder, ignores_case=False)
    assert (found is not None) is matches


@pytest.mark.parametrize("line", ["A.py", "[A].py", "[A-C].py", "[[:upper:]].py", "[!B].py", "?.PY"])
def test_a_path_of_other_case_is_ignored_and_one_that_a_set_leaves_out_in_any_case_is_not(line: str) -> None:
    patterns = Patterns([line])
    assert patterns.find_deciding("a.py", ignores_case=True) is not None
    assert patterns.find_deciding("b.py", ignores_case=True) is None or line in ("[A-C].py", "[[:upper:]].py", "?.PY")


def test_without_regard_to_case_a_path_is_only_excluded_and_never_included() -> None:
    rules = [RuleList("rules", "/", Patterns(["*.py", "!A.py"]))]
    assert {name: find_rule(f"/{name}", "/", lambda _: rules) is not None for name in ("a.py", "A.py", "B.PY")} == {
        "a.py": True,
        "A.py": False,
        "B.PY": True,
    }


def test_a_line_that_is_longer_than_any_path_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ".gitignore"
    path.write_text("a" * 10_001)

    assert is_refused(path.read_text())
    with pytest.raises(UnreadableRulesError, match="a line is too long"):
        RuleFiles().read(str(path), str(tmp_path))
