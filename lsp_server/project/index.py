"""The declarations and imports of the files of one workspace folder, in a database."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from lsp_server.project.declarations import Declaration, Import, Summary

_VERSION = 2  # of the tables, and of what is read from a file
_TABLES = """
CREATE TABLE files (path TEXT PRIMARY KEY, folder TEXT, name TEXT, state TEXT) WITHOUT ROWID;
CREATE INDEX by_file_name ON files (name);
CREATE INDEX by_folder ON files (folder);
CREATE TABLE declarations (path TEXT, name TEXT, parent TEXT, text TEXT);
CREATE INDEX by_path ON declarations (path);
CREATE INDEX by_name ON declarations (name);
CREATE TABLE imports (path TEXT, module TEXT, name TEXT);
CREATE INDEX imports_by_path ON imports (path);
"""


def remove_database(database: Path) -> None:
    """Removes a database, and the files that SQLite keeps beside it."""
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink(missing_ok=True)


class Index:
    """Paths are relative to the folder, with `/` between their parts."""

    def __init__(self, database: Path | None = None) -> None:
        """`database`: the file that keeps it; None: it is kept in memory. One of another version is emptied.

        Raises sqlite3.Error. A file that is no database is replaced.
        """
        try:
            self._open(database)
        except sqlite3.OperationalError:  # the disk is full, or another process writes
            raise
        except sqlite3.DatabaseError:
            self.close()
            if database is not None:
                remove_database(database)
            self._open(database)

    def _open(self, database: Path | None) -> None:
        self._database = sqlite3.connect(database or ":memory:", check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = OFF")
        if self._database.execute("PRAGMA user_version").fetchone() != (_VERSION,):
            names = [name for (name,) in self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            drops = "".join(f"DROP TABLE {name};" for name in names)
            self._database.executescript(f"{drops}{_TABLES}PRAGMA user_version = {_VERSION};")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is changed inside becomes visible at its end."""
        self._database.execute("BEGIN")
        try:
            yield
        finally:
            self._database.execute("COMMIT")

    def list_states(self) -> dict[str, str]:
        """Returns the state that each file had when it was read."""
        return dict(self._database.execute("SELECT path, state FROM files"))

    def put(self, path: str, state: str, summary: Summary) -> None:
        """Adds a file, or replaces what is known of it."""
        place = PurePosixPath(path)
        self.remove([path])
        self._database.execute("INSERT INTO files VALUES (?, ?, ?, ?)", (path, str(place.parent), place.name, state))
        rows = [(path, each.name, each.parent, each.text) for each in summary.declarations]
        self._database.executemany("INSERT INTO declarations VALUES (?, ?, ?, ?)", rows)
        imports = [(path, each.module, each.name) for each in summary.imports]
        self._database.executemany("INSERT INTO imports VALUES (?, ?, ?)", imports)

    def remove(self, paths: Iterable[str]) -> None:
        """Forgets files."""
        for table in ("files", "declarations", "imports"):
            self._database.executemany(f"DELETE FROM {table} WHERE path = ?", [(path,) for path in paths])

    def list_declarations(self, path: str) -> list[Declaration]:
        """Returns what a file declares, in its order."""
        rows = self._database.execute(
            "SELECT name, text, parent FROM declarations WHERE path = ? ORDER BY rowid", (path,)
        )
        return [Declaration(*row) for row in rows]

    def list_imports(self, path: str) -> list[Import]:
        """Returns what a file imports, in its order."""
        rows = self._database.execute("SELECT module, name FROM imports WHERE path = ? ORDER BY rowid", (path,))
        return [Import(*row) for row in rows]

    def find_declared(self, name: str) -> list[str]:
        """Returns the files that declare a name outside of a type."""
        rows = self._database.execute("SELECT DISTINCT path FROM declarations WHERE name = ? AND parent = ''", (name,))
        return [path for (path,) in rows]

    def find_files(self, suffix: str) -> list[str]:
        """Returns the files whose path ends with these parts."""
        rows = self._database.execute("SELECT path FROM files WHERE name = ?", (suffix.rpartition("/")[2],))
        return [path for (path,) in rows if f"/{path}".endswith(f"/{suffix}")]

    def find_first(self, paths: Collection[str]) -> str | None:
        """Returns the first of the paths at which there is a file."""
        marks = ", ".join("?" * len(paths))
        found = {
            path for (path,) in self._database.execute(f"SELECT path FROM files WHERE path IN ({marks})", [*paths])
        }
        return next((path for path in paths if path in found), None)

    def list_folder(self, folder: str) -> list[str]:
        """Returns the files in a folder, without those in its subfolders."""
        return [path for (path,) in self._database.execute("SELECT path FROM files WHERE folder = ?", (folder,))]

    def close(self) -> None:
        """Closes the database."""
        self._database.close()

    def __del__(self) -> None:
        """Closes the database of an index that nobody uses any more; Python warns of an open one."""
        if hasattr(self, "_database"):  # not if it could not be opened
            self.close()
