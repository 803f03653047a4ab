"""A folder that a process of its own indexes."""

import asyncio
import os
import stat
from pathlib import Path

from lsp_server.project.index import Index
from lsp_server.project.project import Project
from tests.support.lsp_editor import wait_for


async def test_a_process_reads_the_folder_and_ends_with_the_project(tmp_path: Path) -> None:
    folder, indexes = tmp_path / "folder", tmp_path / "indexes"
    folder.mkdir()
    (folder / "a.py").write_text("def one(): ...\n")
    changed = asyncio.Event()
    project = Project(folder, indexes, changed.set)
    project.read([])
    await asyncio.wait_for(changed.wait(), 60)
    assert project.report is not None
    assert project.report.languages == {"python": 1}
    index = Index(project.database)
    assert index.find_declared("one") == ["a.py"]
    changed.clear()
    (folder / "b.py").write_text("def two(): ...\n")
    project.read([], [str(folder / "b.py")])
    await asyncio.wait_for(changed.wait(), 60)
    assert index.find_declared("two") == ["b.py"]  # another process has written it meanwhile
    await project.close()
    await wait_for(lambda: not Path(f"/proc/{project.process_id}").exists())


async def test_only_its_owner_can_read_an_index(tmp_path: Path) -> None:
    changed = asyncio.Event()
    project = Project(tmp_path, tmp_path / "indexes", changed.set)
    project.read([])
    await asyncio.wait_for(changed.wait(), 60)
    await project.close()
    modes = {each: stat.S_IMODE(os.stat(each).st_mode) for each in (tmp_path / "indexes", project.database)}
    assert [*modes.values()] == [0o700, 0o600]


async def test_a_process_that_dies_is_started_again_for_the_next_change(tmp_path: Path) -> None:
    changed = asyncio.Event()
    project = Project(tmp_path, tmp_path / "indexes", changed.set)
    project.read([])
    await asyncio.wait_for(changed.wait(), 60)
    assert project.process_id is not None
    os.kill(project.process_id, 9)
    changed.clear()
    (tmp_path / "b.py").write_text("def two(): ...\n")
    project.read([], [str(tmp_path / "b.py")])
    await asyncio.wait_for(changed.wait(), 60)
    assert Index(project.database).find_declared("two") == ["b.py"]
    await project.close()
