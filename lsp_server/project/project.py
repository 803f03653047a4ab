"""A workspace folder whose files are indexed by a process in the background."""

import asyncio
import contextlib
import hashlib
import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from inference.errors import LaunchError
from inference.private_files import make_private_folder
from lsp_server.project.indexer import Job, Report

_log = logging.getLogger(__name__)

_MAX_FAILURES = 3  # of the process; then nothing more is read


def find_database(index_dir: Path, folder: Path) -> Path:
    """Returns the file with the index of a folder."""
    return index_dir / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:32]}.db"


class Project:
    """Starts the process, has it read files, and knows what it has read."""

    def __init__(self, folder: Path, index_dir: Path, on_change: Callable[[], None]) -> None:
        """`index_dir`: where the indexes of a user's folders are. `on_change`: called after files were read."""
        self.folder = folder
        self.database = find_database(index_dir, folder)
        self.report: Report | None = None
        self.process_id: int | None = None
        self._on_change = on_change
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._running = asyncio.create_task(self._run())

    def read(self, exclude: Sequence[str], paths: Sequence[str] | None = None) -> None:
        """Has files read, which may have changed; without paths, all of them."""
        self._jobs.put_nowait(Job(str(self.folder), tuple(exclude), None if paths is None else tuple(paths)))

    async def close(self) -> None:
        """Ends the process."""
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    async def _run(self) -> None:
        job = await self._jobs.get()
        for _ in range(_MAX_FAILURES):
            try:
                await self._run_process(job)
            except (OSError, ValueError, LaunchError) as error:  # it has died, also while it answered
                _log.warning("the index of %s is read again: %s", self.folder, error)
                job = Job(job.folder, job.exclude)

    async def _run_process(self, job: Job) -> None:
        """Has the process do this job and all later ones. Raises OSError or ValueError when it dies."""
        make_private_folder(self.database.parent)
        command = [sys.executable, "-m", "lsp_server.project.indexer", str(self.database)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        self.process_id = process.pid
        try:
            while True:
                process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
                if not (line := await process.stdout.readline()):
                    raise OSError("its process has ended")
                self.report = Report(**json.loads(line))
                self._on_change()
                job = await self._jobs.get()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.stdin.close()
            await process.communicate()  # closes its pipes, too
