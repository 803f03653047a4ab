"""GGUF files: which belong to a model, what they say of it, and a model folder for one.

Only metadata is read. The package `gguf` reads the same in seven seconds of a vocabulary of 151,643 tokens, this in
half a second. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

The folder is made in the user's cache, of links to the file or its parts, and what has to be written. Its name has a
digest of those files, so another is made when they change. It is complete as soon as it has that name. When the files
are gone, it is deleted with the next one that is made.
"""

import hashlib
import json
import mmap
import re
import shutil
import struct
import time
from pathlib import Path
from typing import Any

from inference.errors import LaunchError, ModelError
from inference.model_folder import GGUF_NAME
from inference.private_files import FileLock, find_user_folder, make_private_folder
from midtoken.tokenizer_json import write_folder_files

Metadata = dict[str, Any]  # the values have many shapes

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_CODES = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # type of a value -> its code in `struct`
_TEXT, _ARRAY = 8, 9
_MAX_NAMED = 8  # parts that are missing
_MAX_ITEMS = 2**24  # values, and items of lists; a vocabulary has three for a token
_MAX_BYTES = 2**28  # of all metadata; a file that takes no room on the disk may claim any number
_PART = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")


def list_part_names(name: str) -> list[str]:
    """Returns the names of all parts of a model, in order, if the name is that of a part; else the name."""
    found = _PART.fullmatch(name)
    return [name] if found is None else [f"{found[1]}-{n:05}-of-{found[2]}.gguf" for n in range(1, int(found[2]) + 1)]


def find_parts(path: Path) -> list[Path]:
    """Returns the file, or if it is a part of a model all parts, in order. Raises ModelError if one is missing."""
    parts = [path.with_name(name) for name in list_part_names(path.name)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelError(f"{path} is a part of a model, and beside it {', '.join(missing[:_MAX_NAMED])} is missing")
    return parts


def read_metadata(path: Path) -> Metadata:
    """Returns the metadata of a file, of which the rest need not be there. Raises ModelError."""
    try:
        num_bytes = min(path.stat().st_size, _MAX_BYTES)
        with path.open("rb") as file, mmap.mmap(file.fileno(), num_bytes, access=mmap.ACCESS_READ) as data:
            return _read(path, data)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    except (struct.error, ValueError, RecursionError):  # of UTF-8 too, and of a file without a byte
        raise ModelError(f"{path} has no whole metadata: it is cut off or damaged; download it again") from None


def _read(path: Path, data: mmap.mmap) -> Metadata:
    if data[:4] != _MAGIC:
        raise ModelError(f"{path} is not a GGUF file; a model is a folder, a GGUF file, or a name")
    reader = _Reader(data)
    [version] = reader.read("I")
    if version & 0xFFFF == 0:
        raise ModelError(f"{path} was written for big-endian machines, and cannot be run")
    if version not in _VERSIONS:
        raise ModelError(f"{path} has version {version} of the GGUF format; versions 2 and 3 can be run")
    num_tensors, num_values = reader.read("Q", 2)
    reader.count(num_values + num_tensors)
    metadata = {reader.read_text(): reader.read_value(*reader.read("I")) for _ in range(num_values)}
    for _ in range(num_tensors):  # with its name, shape, type and place
        reader.read_text()
        reader.read("Q", *reader.read("I"))
        reader.read("IQ")
    return metadata


class _Reader:
    """Reads one value after the other. Raises struct.error or ValueError where there is none."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.end = len(_MAGIC)  # of what was read
        self._num_items = 0

    def count(self, num_items: int) -> None:
        self._num_items += num_items
        if self._num_items > _MAX_ITEMS:
            raise ValueError("no model has so many")

    def read(self, code: str, count: int = 1) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{code}")
        values = layout.unpack_from(self._data, self.end)
        self.end += layout.size
        return values

    def read_text(self) -> str:
        start = self.end + 8
        self.end = start + self.read("Q")[0]
        if self.end > len(self._data):
            raise ValueError("a text is cut off")
        return self._data[start : self.end].decode()

    def read_value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.read_text()
        if kind != _ARRAY:
            return self.read(_CODES.get(kind, "unknown"))[0]
        [item], [count] = self.read("I"), self.read("Q")
        self.count(count)
        if item in (_TEXT, _ARRAY):
            return [self.read_value(item) for _ in range(count)]
        return list(self.read(_CODES.get(item, "unknown"), count))


_VERSION = 2  # of what is written
_POLL_S = 0.05
_MAX_NAME_CHARS = 40


def make_folder(path: Path) -> Path:
    """Returns the model folder for an absolute path, which is the path itself if that is no file.

    Raises ModelError or LaunchError.
    """
    if not path.is_file():
        return path
    files = find_parts(path)
    path = files[0]
    stamps = [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in files]
    home = find_user_folder("cache") / "models" / _digest(path)
    folder = home / f"{path.stem[:_MAX_NAME_CHARS]}-{_digest((_VERSION, stamps))}"
    if not folder.is_dir():
        make_private_folder(home, "XDG_CACHE_HOME")
        with FileLock(home / "lock") as lock:
            while not lock.try_acquire():  # another process makes it
                time.sleep(_POLL_S)
            if not folder.is_dir():
                _make(folder, path, files)
    return folder


def _make(folder: Path, path: Path, files: list[Path]) -> None:
    metadata = [read_metadata(each) for each in files]
    num_parts = metadata[0].get("split.count", 1)
    if num_parts not in range(len(files) + 1):  # which may be of any type
        raise ModelError(f"{path} is one of {num_parts} parts of a model, but its name does not say which one")
    contents, fresh = _write_contents(path, metadata[0]), folder.with_name("new")
    links = {GGUF_NAME if each == path else each.name: each for each in files}
    gone = {link.parent for link in folder.parent.parent.glob("*/*/*") if link.is_symlink() and not link.exists()}
    try:
        for other in {*filter(Path.is_dir, folder.parent.iterdir()), *gone}:  # older, or of a process that was killed
            shutil.rmtree(other, ignore_errors=True)
        fresh.mkdir()
        for name, content in contents.items():
            (fresh / name).write_text(json.dumps(content), encoding="utf-8")
        for name, target in links.items():
            (fresh / name).symlink_to(target)
        fresh.replace(folder)
    except OSError as error:
        raise LaunchError(f"cannot write {error.filename}: {error.strerror}") from None


def _write_contents(path: Path, metadata: Metadata) -> dict[str, Any]:
    """Returns the contents of the files to write, by name. Raises ModelError, with the path, if it cannot be run."""
    try:
        return write_folder_files(metadata)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except KeyError as error:
        raise ModelError(
            f"{path}: its metadata has no {error.args[0]}, so it is incomplete; use another file of this model"
        ) from None
    except (AttributeError, IndexError, OSError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: its tokenizer metadata cannot be read ({type(error).__name__}), so it is damaged; use "
            "another file of this model"
        ) from None


def _digest(identity: object) -> str:
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:12]
