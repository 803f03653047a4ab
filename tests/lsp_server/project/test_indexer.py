"""Which files of a folder are read into its index, and when."""

import json
import os
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from lsp_server.exclusion import Policy
from lsp_server.project import indexer
from lsp_server.project.declarations import Summary, summarize
from lsp_server.project.grammar import Grammar, load_grammar
from lsp_server.project.index import Index
from lsp_server.project.indexer import Indexer, Job, Report, remove_unused, run


class Folder:
    """A folder of files, and its index."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = Index()
        self._indexer = Indexer(self.index, Policy(os.environ))

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            file = self.path / f"{name.replace('__', '/')}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def update(self, paths: Sequence[Path] | None = None, exclude: Sequence[str] = ()) -> Report:
        names = None if paths is None else tuple(map(str, paths))
        return self._indexer.update(Job(str(self.path), tuple(exclude), names))

    @property
    def names(self) -> dict[str, list[str]]:
        return {path: [each.name for each in self.index.list_declarations(path)] for path in self.index.list_states()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "folder").mkdir()
    return Folder(tmp_path / "folder")


def test_a_changed_file_is_read_again_and_one_that_is_gone_is_forgotten(folder: Folder) -> None:
    folder.write(a="def one(): ...\n", b="def two(): ...\n", c__d="class Three: ...\n")
    folder.update()
    assert folder.names == {"a.py": ["one"], "b.py": ["two"], "c/d.py": ["Three"]}
    folder.write(a="def other_one(): ...\n")
    (folder.path / "b.py").unlink()
    folder.update([folder.path / "a.py", folder.path / "b.py"])
    assert folder.names == {"a.py": ["other_one"], "c/d.py": ["Three"]}
    (folder.path / "c/d.py").unlink()
    assert folder.update().languages == {"python": 1}
    assert folder.names == {"a.py": ["other_one"]}


def test_only_a_changed_file_is_parsed(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write(a="def one(): ...\n", b="def two(): ...\n")
    folder.update()
    parsed: list[bytes] = []

    def summarize_and_note(source: bytes, grammar: Grammar) -> Summary:
        parsed.append(source)
        return summarize(source, grammar)

    monkeypatch.setattr(indexer, "summarize", summarize_and_note)
    folder.write(b="def three(): ...\n")
    folder.update()
    assert parsed == [b"def three(): ...\n"]


def test_files_that_rules_exclude_are_not_read(folder: Folder) -> None:
    folder.write(a="def one(): ...\n", ignored="def two(): ...\n", hidden="def three(): ...\n", own="def four(): ...\n")
    subprocess.run(["git", "init", "-q", folder.path], check=True)
    (folder.path / ".gitignore").write_text("ignored.py\n")
    (folder.path / ".midtokenignore").write_text("hidden.py\n")
    report = folder.update(exclude=["own.py"])
    assert folder.names == {"a.py": ["one"]}
    assert report.num_excluded == 2  # Git does not even list the other one
    (folder.path / ".midtokenignore").write_text("a.py\n")
    folder.update()
    assert folder.names == {"hidden.py": ["three"], "own.py": ["four"]}


def test_an_ignored_file_that_changes_is_not_read(folder: Folder) -> None:
    folder.write(ignored="def two(): ...\n")
    subprocess.run(["git", "init", "-q", folder.path], check=True)
    (folder.path / ".gitignore").write_text("ignored.py\n")
    assert folder.update([folder.path / "ignored.py"]).num_excluded == 1
    assert folder.names == {}


def test_links_and_other_folders_are_left_out(folder: Folder, tmp_path: Path) -> None:
    folder.write(a="def one(): ...\n", node_modules__b="def two(): ...\n")
    (tmp_path / "secret.py").write_text("def secret(): ...\n")
    (folder.path / "link.py").symlink_to(tmp_path / "secret.py")
    (folder.path / "circle").symlink_to(folder.path)
    (folder.path / ".venv").mkdir()
    (folder.path / ".venv/d.py").write_text("def four(): ...\n")
    folder.update()
    folder.update([folder.path / "link.py", tmp_path / "secret.py"])
    assert folder.names == {"a.py": ["one"]}


def test_what_is_no_text_or_too_large_is_counted_and_not_read(folder: Folder) -> None:
    folder.write(large=f"x = '{'y' * 500_000}'\n", nul="def f(): ...\n\0", latin="def one(): ...\n")
    (folder.path / "latin.py").write_bytes(b"# \xe9\ndef one(): ...\n")
    (folder.path / "folder.py").mkdir()
    assert folder.update().num_unread == 2
    assert folder.names == {"latin.py": ["one"]}


def test_files_beyond_the_limit_are_counted(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer, "MAX_FILES", 3)
    folder.write(**{f"file{number}": "def one(): ...\n" for number in range(5)})
    assert folder.update().num_left_out == 2
    assert len(folder.names) == 3


def test_an_index_of_another_version_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "index.db"
    first = Index(database)
    first.put("a.py", "1 2", summarize(b"def one(): ...\n", load_grammar("python")))
    assert Index(database).list_states() == {"a.py": "1 2"}
    first.close()
    monkeypatch.setattr("lsp_server.project.index._VERSION", 1_000)
    assert Index(database).list_states() == {}


def test_an_index_that_is_no_database_is_made_anew(tmp_path: Path) -> None:
    database = tmp_path / "index.db"
    database.write_bytes(b"something else " * 1_000)
    with closing(Index(database)) as index:
        assert index.list_states() == {}


def test_a_damaged_index_is_removed_and_made_anew(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.py").write_text("def one(): ...\n")
    database, job = tmp_path / "index.db", json.dumps(asdict(Job(str(tmp_path / "folder"))))
    with closing(Index(database)) as index:
        for number in range(500):
            index.put(f"{number}.py", "1 2", Summary())
    with database.open("r+b") as file:  # the tables are still known, but not what is in them
        file.seek(4096)
        file.write(b"\xff" * (database.stat().st_size - 4096))
    with pytest.raises(sqlite3.DatabaseError):
        list(run(database, [job]))
    assert [json.loads(each)["languages"] for each in run(database, [job])] == [{"python": 1}]


def test_an_index_that_nobody_has_used_for_long_is_removed(tmp_path: Path) -> None:
    names = {"old.db", "old.db-wal", "new.db", "new.db-wal"}
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 89 * 86_400 if name == "new.db" else 0))
    remove_unused(tmp_path, 100 * 86_400.0)
    assert {each.name for each in tmp_path.iterdir()} == {"new.db", "new.db-wal"}


def test_a_run_says_that_its_index_is_used(tmp_path: Path) -> None:
    database = tmp_path / "index.db"
    Index(database).close()
    os.utime(database, (0, 0))
    assert list(run(database, [])) == []
    assert database.stat().st_mtime > 0
