"""The paths of one file: as it was opened, and with one symbolic link less each time, up to the real path."""

import os
from collections.abc import Iterator

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
