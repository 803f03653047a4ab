"""A model folder for a GGUF file.

It is made in the user's cache, of links to the file or its parts, and what has to be written. Its name has a digest of
those files, so another is made when they change. It is complete as soon as it has that name. When the files are gone,
it is deleted with the next one that is made.
"""

import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

from inference.errors import LaunchError, ModelError
from inference.model_folder import GGUF_NAME
from inference.serving.private_files import FileLock, find_user_folder, make_private_folder
from midtoken.gguf_file import Metadata, find_parts, read_metadata
from midtoken.tokenizer_json import write_folder_files

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
            while not lock.try_acquire(shared=False):  # another process makes it
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
