"""The paths of a document: those that its URI names, and for each the ones that symbolic links lead to.

A path on a drive of Windows is written as in a URI, `/c:/folder/file`; `to_system_path` makes of it what `os` takes.
"""

import errno
import os
import posixpath
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote_to_bytes

from lsp_server.privacy.patterns import RuleFiles

_DRIVE = re.compile(r"/*([A-Za-z]):(?=[/\\]|$)/?")


@dataclass(frozen=True, slots=True)
class UriPath:
    """Where a document is. Paths that do not begin with `/` are only names."""

    paths: tuple[str, ...] = ()  # `?` and `#` may end a path or be a part of it, so both readings count
    elsewhere: str | None = None  # the machine or drive, if the paths are not those of this machine

    @property
    def is_file(self) -> bool:
        """False for a document that is in no folder yet."""
        return self.elsewhere is not None or any(path.startswith("/") for path in self.paths)


def read_uri(uri: str) -> UriPath:
    """Returns the paths that a URI names, with `/` between their parts. Other schemes than `file` name paths, too.

    So `untitled:/home/me/.env` is judged as the file that it will be, and a cell of a notebook as its notebook.
    """
    scheme, _, rest = uri.partition(":")
    if len(scheme) == 1:  # not a URI, but a path on Windows
        return read_uri(f"file:///{uri}")
    authority = ""
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    if _DRIVE.match(_decode(authority)):  # file://C:/folder is wrong, but written
        authority, rest = "", f"/{authority}{rest}"
    paths = tuple(dict.fromkeys(_decode(part) for part in (re.split("[?#]", rest)[0], rest) if part))
    drive = _DRIVE.match(paths[0]) if paths else None
    if drive:
        return UriPath(
            tuple("/" + path.replace("\\", "/").lstrip("/") for path in paths),
            None if sys.platform == "win32" else f"the drive {drive[1].upper()}:",
        )
    if authority not in ("", "localhost"):
        return UriPath(paths, f"the machine {_decode(authority)}")
    return UriPath(paths)


def _decode(text: str) -> str:
    """Bytes that are not UTF-8 become what they are in the paths of `os`."""
    return os.fsdecode(unquote_to_bytes(text.encode("utf-8", "surrogatepass")))


def to_system_path(path: str) -> str:
    """Returns what the functions of `os` call a path, `c:/folder/file` on a drive of Windows."""
    return _DRIVE.sub(r"\1:/", path, count=1) if sys.platform == "win32" and _DRIVE.match(path) else path


def find_real_path(path: str) -> str:
    """Returns the path without symbolic links; on Windows also without junctions, short names and `subst`."""
    return "/" + os.path.realpath(to_system_path(path)).replace(os.sep, "/").lstrip("/")


class Disk:
    """What is on the disk at one moment: each path is looked at once, because that may take milliseconds."""

    def __init__(self, files: RuleFiles) -> None:
        """`files`: those that were read before."""
        self.read_rules = cache(lambda path, *more: files.read(to_system_path(path), *more))
        self.find_status = cache(_find_status)

    def is_link(self, path: str) -> bool:
        status = self.find_status(path)
        return status is not None and stat.S_ISLNK(status.st_mode)


def _find_status(path: str) -> os.stat_result | None:
    """Returns the status of what is at a path, also of a symbolic link; None if there is nothing."""
    try:
        return os.lstat(to_system_path(path))
    except OSError:
        return None


_MAX_LINKS = 40  # as Linux


def iter_spellings(path: str, disk: Disk) -> Iterator[str]:
    """Yields absolute paths. The file need not exist. Raises OSError for a link that is unreadable, and for a loop.

    All of them count: a link may lead into an excluded folder and out of it again.
    """
    if sys.platform == "win32":  # which says where a path leads, but nothing of the way
        yield from (posixpath.normpath(path), find_real_path(path))
        return
    for _ in range(_MAX_LINKS):
        yield "/" + posixpath.normpath(path).lstrip("/")  # POSIX lets a path begin with two slashes
        followed = _follow_first_link(path, disk)
        if followed is None:
            return
        path = followed
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _follow_first_link(path: str, disk: Disk) -> str | None:
    """Returns the path with its first symbolic link replaced by the link's target; None if there is no link.

    `..` goes to the parent of the folder that the path before it leads to, so a link before `..` must be followed.
    """
    done: list[str] = []
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for index, part in enumerate(parts):
        if part == "..":
            done = done[:-1]
            continue
        here = "/" + "/".join([*done, part])
        if disk.is_link(here):
            target = os.readlink(here)
            folder = "" if target.startswith("/") else "/" + "/".join(done)
            return "/".join([folder, target, *parts[index + 1 :]])
        done.append(part)
    return None
