import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from lsp_server.privacy.exclusion import Policy
from tests.support.private_files import EXCLUDED_FILES, ExcludedFile

_PATH = os.environ["PATH"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def _find(path: Path, exclude: Sequence[str] = (), folders: Sequence[Path] = (), home: str = "/nowhere") -> str | None:
    policy = Policy({"PATH": _PATH, "HOME": home, "GIT_CONFIG_NOSYSTEM": "1"})
    policy.configure(exclude, [each.as_uri() for each in folders])
    return policy.find_exclusion(path.as_uri())


def _make_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True, env={"PATH": _PATH})


@pytest.mark.parametrize("case", EXCLUDED_FILES, ids=lambda case: case.name)
def test_a_private_file_is_excluded_and_the_one_beside_it_is_not(case: ExcludedFile, folder: Path) -> None:
    document = case.build(folder / "x")
    assert _find(document, case.setting, [folder / "x"]) is not None
    assert _find(folder / "x" / case.harmless, case.setting, [folder / "x"]) is None


def test_the_reason_names_the_rule(folder: Path) -> None:
    _make_repository(folder)
    (folder / ".gitignore").write_text("\nlocal.py\n")
    (folder / ".midtokenignore").write_text("# ours\n\nsecrets/\n")
    assert _find(folder / "local.py") == "git ignores it (`.gitignore` line 2: `local.py`)"
    assert _find(folder / "secrets" / "x.py") == "`.midtokenignore` line 3: `secrets/`"
    assert _find(folder / ".env.local") == "it looks like a credentials file (`.env*`)"
    assert _find(folder / "private" / "x.py", ["**/private/**"]) == "setting exclude: `**/private/**`"


@pytest.mark.parametrize("name", ["keys.py", "credentials.py", "credentials/a.py", "env.py", "id_rsa_key.py"])
def test_code_about_credentials_is_not_excluded(name: str, folder: Path) -> None:
    assert _find(folder / name) is None


def test_a_users_own_ignore_file_counts(folder: Path) -> None:
    _make_repository(folder / "project")
    (folder / ".gitconfig").write_text(f"[core]\nexcludesFile = {folder}/mine\n")
    (folder / "mine").write_text("scratch.py\n")
    assert _find(folder / "project" / "scratch.py", home=str(folder)) == "git ignores it (`mine` line 1: `scratch.py`)"


def test_gits_default_for_it_counts_too(folder: Path) -> None:
    _make_repository(folder / "project")
    (folder / ".config" / "git").mkdir(parents=True)
    (folder / ".config" / "git" / "ignore").write_text("scratch.py\n")
    assert _find(folder / "project" / "scratch.py", home=str(folder)) is not None


def test_a_broken_git_configuration_excludes(folder: Path) -> None:
    _make_repository(folder / "project")
    (folder / ".gitconfig").write_text("[core\n")
    reason = _find(folder / "project" / "a.py", home=str(folder))
    assert reason is not None
    assert reason.startswith("Git does not say whether it ignores it: fatal: bad config line 1")


def test_an_outer_repository_has_no_say(folder: Path) -> None:
    _make_repository(folder)
    _make_repository(folder / "inner")
    (folder / ".gitignore").write_text("inner/\n")
    assert _find(folder / "inner" / "a.py") is None


def test_rules_of_git_do_not_count_outside_a_repository(folder: Path) -> None:
    (folder / ".gitignore").write_text("a.py\n")
    (folder / ".git").mkdir()  # without a HEAD, Git goes on upwards
    assert _find(folder / "a.py") is None


def test_a_worktree_has_the_rules_of_its_repository(folder: Path) -> None:
    _make_repository(folder / "main")
    identity = ("-c", "user.name=a", "-c", "user.email=a")
    commit, add = ("commit", "-q", "--allow-empty", "-m", "a"), ("worktree", "add", "-q", str(folder / "wt"))
    for arguments in (commit, add):
        command = ["git", "-C", str(folder / "main"), *identity, *arguments]
        subprocess.run(command, check=True, env={"PATH": _PATH, "HOME": str(folder)})
    (folder / "main" / ".git" / "info" / "exclude").write_text("mine.py\n")
    assert _find(folder / "wt" / "mine.py") == "git ignores it (`exclude` line 1: `mine.py`)"


def test_an_unreadable_ignore_file_excludes(folder: Path) -> None:
    (folder / ".midtokenignore").symlink_to(".midtokenignore")
    reason = _find(folder / "a.py")
    assert reason == f"`{folder}/.midtokenignore` cannot be read: Too many levels of symbolic links"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("file:///c%3A/Users/me/a.py", "it is on the drive C:, where its ignore files cannot be read"),
        ("file:///c%3A/Users/me/.ENV", "it looks like a credentials file (`.env*`)"),
        ("file://server/share/a.py", "it is on the machine server, where its ignore files cannot be read"),
        ("file:///a%00b.py", "its path has a NUL byte, and no file has such a path"),
        ("untitled:.env", "it looks like a credentials file (`.env*`)"),
        ("vscode-notebook-cell:/nowhere/.ssh/a.ipynb#W0", "it looks like a credentials file (`.ssh/`)"),
    ],
)
def test_other_addresses_are_judged_as_far_as_they_can_be(uri: str, reason: str) -> None:
    assert Policy({}).find_exclusion(uri) == reason


def test_a_path_that_begins_with_two_slashes_is_the_same(folder: Path) -> None:
    (folder / ".midtokenignore").write_text("a.py\n")
    assert Policy({}).find_exclusion(f"file:///{folder}/a.py") is not None


@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "file://", "file:///nowhere/new/folder/a.py", "xy:z", ""])
def test_a_document_without_a_rule_is_not_excluded(uri: str) -> None:
    assert Policy({}).find_exclusion(uri) is None


def test_a_pattern_of_the_setting_that_can_match_nothing_excludes_everything(folder: Path) -> None:
    reason = _find(folder / "a.py", ["ok", "[a"])
    assert reason == "setting exclude: `[a` is a pattern that can match nothing, so please correct it"


def test_a_removed_pattern_of_the_setting_counts_no_longer(folder: Path) -> None:
    policy = Policy({})
    uri = (folder / "a.py").as_uri()
    policy.configure(["a.py"])
    assert policy.find_exclusion(uri) is not None
    policy.configure([])
    assert policy.find_exclusion(uri) is None
