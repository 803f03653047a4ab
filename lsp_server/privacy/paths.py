"""The paths of a document: those that its URI names, and for each the ones that symbolic links lead to."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

_DRIVE = re.compile(r"/*([A-Za-z]):(?=[/\\]|$)")


@dataclass(frozen=True, slots=True)
class UriPath:
    """Where a document is. Paths that do not begin with `/` are only names."""

    paths: tuple[str, ...] = ()  # `?` and `#` may end a path or be a part of it, so both readings count
    elsewhere: str | None = None  # the machine or drive, if the paths are not those of this machine


def read_uri(uri: str) -> UriPath:
    """Returns the paths that a URI names, with `/` between their parts. Other schemes than `file` name paths, too.

    So `untitled:/home/me/.env` is judged as the file that it will be, and a cell of a notebook as its notebook.
    """
    scheme, _, rest = uri.partition(":")
    if len(scheme) == 1:  # not a URI, but a path on Windows
        return UriPath((_decode(uri).replace("\\", "/"),), f"the drive {scheme.upper()}:")
    authority = ""
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    if _DRIVE.match(_decode(authority)):  # file://C:/folder is wrong, but written
        authority, rest = "", f"/{authority}{rest}"
    paths = tuple(dict.fromkeys(_decode(part) for part in (re.split("[?#]", rest)[0], rest) if part))
    drive = _DRIVE.match(paths[0]) if paths else None
    if drive:
        return UriPath(tuple(path.replace("\\", "/") for path in paths), f"the drive {drive[1].upper()}:")
    if authority not in ("", "localhost"):
        return UriPath(paths, f"the machine {_decode(authority)}")
    return UriPath(paths)


def _decode(text: str) -> str:
    """Bytes that are not UTF-8 become what they are in the paths of `os`."""
    return os.fsdecode(unquote_to_bytes(text.encode("utf-8", "surrogatepass")))


_MAX_LINKS = 40  # as Linux


class LinkLoopError(Exception):
    """The path leads through more symbolic links than the system follows."""


def iter_spellings(path: str) -> Iterator[str]:
    """Yields absolute paths. The file need not exist. Raises LinkLoopError, or OSError for a link that is unreadable.

    All of them count: a link may lead into an excluded folder and out of it again.
    """
    for _ in range(_MAX_LINKS):
        yield "/" + os.path.normpath(path).lstrip("/")  # POSIX lets a path begin with two slashes
        followed = _follow_first_link(path)
        if followed is None:
            return
        path = followed
    raise LinkLoopError


def _follow_first_link(path: str) -> str | None:
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
        if os.path.islink(here):
            target = os.readlink(here)
            folder = "" if target.startswith("/") else "/" + "/".join(done)
            return "/".join([folder, target, *parts[index + 1 :]])
        done.append(part)
    return None
