"""Source text in many languages: files on this machine."""

import hashlib
import heapq
import os
import sysconfig
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

_NUM_CANDIDATES = 300  # files of a language that are read; those of an unsuitable size are skipped
_MIN_FILES = 5  # a language with fewer is left out
_MIN_FILE_BYTES = 1_000
_MAX_FILE_BYTES = 400_000
_MAX_VISITED_FILES = 250_000  # under one root; a tree of a million files would take too long


_SUFFIXES = (
    (".py", ".pyi"), (".c", ".h"), (".hpp", ".cuh", ".cpp", ".cc"), (".rs",), (".js", ".mjs", ".cjs"), (".ts", ".tsx"),
    (".go",), (".lua",), (".sh", ".bash"), (".pl", ".pm"), (".tcl",), (".html", ".htm"), (".css",), (".md", ".rst"),
    (".json",), (".yaml", ".yml"), (".mk", ".mak", ".am"),
)  # fmt: skip


def load_sources() -> list[list[str]]:
    """Returns the texts of each language that has enough files. The same machine gives the same texts."""
    by_suffix = {suffix: number for number, suffixes in enumerate(_SUFFIXES) for suffix in suffixes}
    paths: list[set[str]] = [set() for _ in _SUFFIXES]
    for path in chain.from_iterable(map(_iter_paths, _find_roots())):
        if (number := by_suffix.get(os.path.splitext(path)[1])) is not None:
            paths[number].add(path)
    read = ([*filter(None, map(_read_text, heapq.nsmallest(_NUM_CANDIDATES, some, _hash)))] for some in paths)
    return [texts for texts in read if len(texts) >= _MIN_FILES]


def _find_roots() -> list[Path]:
    """Returns the folders in which systems keep headers, packages, manuals and toolchains."""
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib", "include")]
    toolchains = [Path.home() / name for name in (".rustup", ".cargo")]
    system = [Path(prefix, name) for prefix in ("/usr", "/usr/local") for name in ("include", "lib", "share")]
    return [root for root in dict.fromkeys([*installed, *toolchains, *system]) if root.is_dir()]


def _iter_paths(root: Path) -> Iterator[str]:
    num_visited = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        yield from (os.path.join(folder, name) for name in names)
        num_visited += len(names)
        if num_visited > _MAX_VISITED_FILES:
            return


def _hash(path: str) -> bytes:
    return hashlib.sha256(path.encode(errors="surrogateescape")).digest()


def _read_text(path: str) -> str | None:
    """Returns the file's text with its own line ends; None if it is not UTF-8, too small or too large."""
    try:
        if not _MIN_FILE_BYTES <= os.path.getsize(path) <= _MAX_FILE_BYTES:
            return None
        return Path(path).read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
