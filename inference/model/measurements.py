"""What was measured of a model on this machine, and the machine itself.

Results are kept in the cache folder, beside converted models. If it cannot be used, all is measured again.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from inference.platforms import is_own

MAX_SMALL = 100_000_000  # weights of a small model; in float32, they take 0.4 GB
_GROUP_AND_OTHERS_WRITE = 0o022
# Where a group's limit is, by the controllers that a line of /proc/self/cgroup names: versions 2 and 1 of cgroups.
_LIMITS = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}

Measured = dict[str, float]
Recall = Callable[..., Measured]  # see `_recall`


@dataclass(frozen=True, slots=True)
class Fit:
    """The precision and the threads that were chosen, and why."""

    dtype: str
    num_threads: int
    reason: str

    def __str__(self) -> str:
        threads = "1 thread" if self.num_threads == 1 else f"{self.num_threads} threads"
        return f"{self.dtype}, {threads} ({self.reason})"


def open_measurements(folder: Path | None) -> Recall:
    """What returns a result that was measured under a name, in this call or an earlier one, and keeps it if it may."""
    if folder is not None:
        with contextlib.suppress(OSError):  # who keeps a converted model there says what is wrong
            make_own_folder(folder)
            return partial(_recall, folder)
    return lambda _name, measure, _keeps=True: measure()


def _recall(folder: Path, name: str, measure: Callable[[], Measured], keeps: bool = True) -> Measured:
    path = folder / f"{hashlib.sha256(name.encode()).hexdigest()}.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        measured = measure()
    with contextlib.suppress(OSError):
        if keeps:
            path.write_text(json.dumps(measured), encoding="utf-8")
    return measured


def make_own_folder(folder: Path) -> None:
    """Makes the folder if it is missing. Raises OSError if this user cannot use it alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if not is_own(status) or status.st_mode & _GROUP_AND_OTHERS_WRITE:
        raise PermissionError(f"other users may write to {folder}")


def identify_files(paths: Iterable[Path]) -> list[tuple[str, int, int, int]]:
    """The same only as long as no file is changed or moved. Their content, which may be gigabytes, is not read."""
    stats = {path: path.stat() for path in sorted(path.resolve() for path in paths)}
    return [(str(path), each.st_size, each.st_mtime_ns, each.st_ctime_ns) for path, each in stats.items()]


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_memory(root: Path = Path("/")) -> int:
    """The bytes of memory that this process may use; of a system that does not say, more than there are."""
    if not hasattr(os, "sysconf"):
        return 2**62
    num_bytes: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([num_bytes, *_iter_limits(root)])


def _iter_limits(root: Path) -> Iterator[int]:
    """The limits of the process's group and of those above it. A container may see its own as the uppermost."""
    groups = root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, path = line.split(":", 2)
        place, name = _LIMITS.get(controllers, ("", ""))
        for group in (Path(path), *Path(path).parents):
            file = root / "sys/fs/cgroup" / place / group.relative_to("/") / name
            if file.is_file() and (limit := file.read_text().strip()).isdigit():
                yield int(limit)


def is_busy() -> bool:
    """Whether others use so much of the cores that a trial would say little of calmer times."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > count_cores() / 2
