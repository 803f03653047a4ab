"""The Python source that the bundled model is trained on, and the files that are held out.

The standard library of the running interpreter is split by the hash of each file's relative path. About one file in
twenty is held out. The split is the same on every machine with the same version of Python. Benchmarks measure with
held-out files only.
"""

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# A file with a longer line is a data table, not code that a person wrote.
_MAX_LINE_CHARS = 1000
_MAX_FILE_BYTES = 400_000
_DATA_FOLDERS = ("encodings", "pydoc_data", "site-packages", "__pycache__", "lib2to3/tests/data", "test/cjkencodings")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the corpus. `path` is relative to the folder that `root` names, with `/` between its parts."""

    root: str
    path: str
    text: str


def iter_held_out() -> Iterator[SourceFile]:
    """Yields the held-out files of the standard library, in the order of their paths."""
    return (file for file in _iter_stdlib() if is_held_out(file.path))


def iter_training(package_roots: list[Path]) -> Iterator[SourceFile]:
    """Yields the standard library without the held-out files, then every package under `package_roots`.

    A file is skipped if its text equals that of a held-out file or of an earlier file.
    """
    seen = {_digest(file.text) for file in iter_held_out()}
    kept_stdlib = (file for file in _iter_stdlib() if not is_held_out(file.path))
    packages = (file for root in package_roots for file in _iter_python_files(root, root.name))
    for files in (kept_stdlib, packages):
        for file in files:
            digest = _digest(file.text)
            if digest not in seen:
                seen.add(digest)
                yield file


def is_held_out(path: str) -> bool:
    """True for 12 paths in 256. The result depends only on the path."""
    return hashlib.sha256(path.encode()).digest()[0] < 256 // 20


def _iter_stdlib() -> Iterator[SourceFile]:
    return _iter_python_files(Path(sysconfig.get_path("stdlib")), "stdlib")


def _iter_python_files(root: Path, source: str) -> Iterator[SourceFile]:
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if any(f"{folder}/" in f"{name}/" for folder in _DATA_FOLDERS):
            continue
        text = _read_source(path)
        if text is not None:
            yield SourceFile(source, name, text)


def _read_source(path: Path) -> str | None:
    """Returns the file's text; None if it is not UTF-8, very short or very long, or data rather than code."""
    if path.stat().st_size > _MAX_FILE_BYTES:
        return None
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        return None
    if len(text) < 200 or any(len(line) > _MAX_LINE_CHARS for line in text.splitlines()):
        return None
    return text


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
