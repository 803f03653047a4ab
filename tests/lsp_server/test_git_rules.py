"""What Git says of paths, and what holds where it says nothing."""

import os
import shutil
import time
from pathlib import Path

import pytest

from lsp_server.exclusion import Policy
from tests.support.private_files import GIT_ENVIRONMENT, run_git

_PATH = os.environ["PATH"]
_REASON = "git ignores it (`.gitignore` line 1: `a.py`)"
_UNANSWERED = "Git does not report whether it ignores it: it does not answer in time"


@pytest.fixture
def folder(folder: Path) -> Path:
    run_git(folder, "init", "--quiet", "project")
    return folder / "project"


def _find(path: Path, **environment: str) -> str | None:
    return Policy(GIT_ENVIRONMENT | environment).find_exclusion(path.as_uri())


def _install_git(folder: Path, script: str) -> str:
    """Makes a program `git`. Returns the PATH with which it is found first."""
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)
    return f"{folder}:{_PATH}"


def test_all_paths_of_a_repository_are_asked_about_at_once(folder: Path, tmp_path: Path) -> None:
    (folder / ".gitignore").write_text("a.py\n")
    log = tmp_path / "log"
    path = _install_git(tmp_path / "bin", f'echo "$@" >> {log}; PATH={_PATH} exec git "$@"')
    uris = [(folder / name).as_uri() for name in ("a.py", "b.py", "c/a.py")]
    found = Policy(GIT_ENVIRONMENT | {"PATH": path}).find_exclusions(dict.fromkeys(uris, ""))
    assert [*found.values()] == [_REASON, None, _REASON]
    assert len(log.read_text().splitlines()) == 1


_PROGRAMS = ("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "diff.external")


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (["add", "--force", "a.py"], {}),  # a tracked file
        (["config", "core.bare", "true"], {}),
        (["config", "core.worktree", "/dev"], {}),  # the folder was moved
        (["config", "core.worktree", "/nowhere/project"], {}),
        (["status"], {"GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/", "GIT_TRACE": "1"}),  # of another repository
        *((["config", name, "{program}"], {}) for name in _PROGRAMS),
    ],
    ids=["tracked", "bare", "moved", "moved from nowhere", "environment", *_PROGRAMS],
)
def test_rules_count_whatever_a_repository_says_and_no_program_of_it_is_run(
    command: list[str], environment: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    _install_git(tmp_path / "bin", f"touch {tmp_path}/ran")
    (folder / ".gitignore").write_text("a.py\n")
    (folder / "a.py").touch()
    run_git(folder, *(argument.format(program=tmp_path / "bin" / "git") for argument in command))
    assert [_find(folder / name, **environment) for name in ("a.py", "b.py")] == [_REASON, None]
    assert not (tmp_path / "ran").exists()


# Git 2.35.2 to 2.37 takes `safe.directory` from files only.
_STRICT = """case "$*" in *--git-dir*) PATH={path} exec git "$@";; esac
echo "fatal: unsafe repository ('.' is owned by someone else)" >&2; exit 128"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("is_strict", [False, True])
def test_the_rules_of_another_users_repository_count(is_strict: bool, folder: Path, tmp_path: Path) -> None:
    (folder / ".gitignore").write_text("a.py\n")
    for path in (folder, folder / ".git"):
        os.chown(path, 12345, 12345)
    environment = {"PATH": _install_git(tmp_path / "bin", _STRICT.format(path=_PATH))} if is_strict else {}
    assert [_find(folder / name, **environment) for name in ("a.py", "b.py")] == [_REASON, None]


@pytest.mark.parametrize("kind", ["worktree", "submodule", "elsewhere"])
def test_a_repository_may_be_in_another_folder(kind: str, folder: Path, tmp_path: Path) -> None:
    (folder / ".gitignore").write_text("/sub/a.py\n")
    top = tmp_path / "top"
    if kind == "elsewhere":
        run_git(folder, "config", "core.worktree", str(top))
        top.mkdir()
        (top / ".git").write_text(f"gitdir: {folder}/.git\n")
        (top / ".gitignore").write_text("/sub/a.py\n")
    else:
        run_git(folder, "add", ".gitignore")
        run_git(folder, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "a")
    if kind == "worktree":
        run_git(folder, "worktree", "add", "--quiet", str(top))
    if kind == "submodule":
        run_git(tmp_path, "init", "--quiet", "outer")
        add = ("submodule", "--quiet", "add", str(folder), "in")
        run_git(tmp_path / "outer", "-c", "protocol.file.allow=always", *add)
        top = tmp_path / "outer" / "in"
    assert (top / ".git").is_file()
    assert [_find(top / name) is None for name in ("sub/a.py", "a.py")] == [False, True]


_MOVED = "gitdir: /nowhere/.git/worktrees/project\n"  # as in a container that has only the worktree


@pytest.mark.parametrize(
    ("file", "text", "is_known"),
    [(".git", _MOVED, True), (".git", "", False), (".git/HEAD", "", True), (".git/config", "[", False)],
    ids=["no repository", "no path", "empty HEAD", "corrupt"],
)
def test_what_git_cannot_answer_does_not_mean_that_nothing_is_ignored(
    file: str, text: str, is_known: bool, folder: Path
) -> None:
    (folder / ".gitignore").write_text("a.py\n")
    if file == ".git":
        shutil.rmtree(folder / ".git")
    (folder / file).write_text(text)
    found = [_find(folder / name) for name in ("a.py", "b.py")]
    assert found == [_REASON, None] if is_known else all(found)


@pytest.mark.parametrize("path", [_PATH, "/nowhere"], ids=["Git", "no Git"])
def test_a_folder_that_is_no_repository_belongs_to_the_one_around_it(path: str, folder: Path) -> None:
    (folder / ".gitignore").write_text("a.py\n")
    (folder / "sub" / ".git").mkdir(parents=True)
    (folder / "sub" / ".gitignore").write_text("b.py\n")
    found = {name: _find(folder / "sub" / name, PATH=path) is not None for name in ("a.py", "b.py", "c.py")}
    assert found == {"a.py": True, "b.py": True, "c.py": False}


def test_names_behind_a_symbolic_link_are_compared_with_the_rules(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / ".gitignore").write_text("/link/a.py\n")
    (folder / ".git" / "info" / "exclude").write_text("b.py\n")
    found = {name: _find(folder / "link" / name) is not None for name in ("a.py", "b.py", "open.py")}
    assert found == {"a.py": True, "b.py": True, "open.py": False}


def test_what_git_warns_of_excludes(folder: Path) -> None:
    (folder / ".gitignore").symlink_to("/nowhere/rules")
    assert "unable to access" in (_find(folder / "a.py") or "")


def test_a_git_that_hangs_is_ended(folder: Path, tmp_path: Path) -> None:
    path = _install_git(tmp_path / "bin", f"echo $$ > {tmp_path}/pid; exec sleep 61")
    assert Policy(GIT_ENVIRONMENT | {"PATH": path}, 0.5).find_exclusion((folder / "a.py").as_uri()) == _UNANSWERED
    assert _has_ended(int((tmp_path / "pid").read_text()))


def _has_ended(process_id: int) -> bool:
    """Waits for the end of a process that is not a child of this one."""
    for _ in range(1000):
        try:
            with open(f"/proc/{process_id}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":  # nobody has asked for its status
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False
