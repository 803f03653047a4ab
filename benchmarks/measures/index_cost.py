"""What the process costs that indexes a workspace folder of ten thousand files."""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path

from benchmarks.corpora.projects import fetch_projects
from benchmarks.measures.report import Figures
from lsp_server.project.indexer import Job

_NUM_FILES, _NUM_SHORT_FILES = 10_000, 200
_NUM_CHANGES = 20
_COMPOUND = re.compile(r"\b[a-z]+(?:[A-Z]|_[a-z])\w*")  # no keyword is one


def measure_index(is_short: bool) -> Figures:
    """Copies the projects until there are enough files, with other names in each copy, and has all of them read."""
    with tempfile.TemporaryDirectory(prefix="midtoken-") as name:
        folder = Path(name).resolve() / "folder"
        paths = [*_write_files(folder, is_short)]
        with _start(folder.parent / "index.db") as process:
            report = _read(process, Job(str(folder)))
            figures: dict[str, float] = {
                "index_files": sum(report["languages"].values()),
                "index_cpu_s": _find_cpu_s(process.pid),
                "index_memory_mb": _find_peak_mb(process.pid),
                "index_disk_mb": (folder.parent / "index.db").stat().st_size / 1e6,
            }
            times_ms = [_change(process, folder, path) for path in paths[:: len(paths) // _NUM_CHANGES]]
    return {**figures, "index_change_ms": statistics.median(times_ms)}


def _write_files(folder: Path, is_short: bool) -> Iterator[Path]:
    for path, text in islice(_iter_copies(folder, is_short), _NUM_SHORT_FILES if is_short else _NUM_FILES):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        yield path


def _iter_copies(folder: Path, is_short: bool) -> Iterator[tuple[Path, str]]:
    files = [(project, path) for project in fetch_projects(is_short) for path in project.list_files()]
    for number in count():
        for project, path in files:
            text = (project.root / path).read_text(errors="replace")
            yield folder / f"copy_{number}" / project.root.name / path, _COMPOUND.sub(rf"\g<0>{number}", text)


@contextmanager
def _start(database: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "lsp_server.project.indexer", str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def _read(process: "subprocess.Popen[str]", job: Job) -> dict[str, dict[str, int]]:
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(asdict(job)), file=process.stdin, flush=True)
    report: dict[str, dict[str, int]] = json.loads(process.stdout.readline())
    return report


def _change(process: "subprocess.Popen[str]", folder: Path, path: Path) -> float:
    """Returns the time until one changed file is read, in ms."""
    path.write_text(path.read_text() + "\n")
    started_at = time.perf_counter()
    _read(process, Job(str(folder), (), (str(path),)))
    return 1e3 * (time.perf_counter() - started_at)


def _find_cpu_s(process_id: int) -> float:
    """Of the process, and of those that it has started."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _find_peak_mb(process_id: int) -> float:
    """The largest resident memory so far, in 10⁶ bytes."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
