"""One setting brings a model from a hub, and completions start by themselves when it is here."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from midtoken.installed import find_default_model
from tests.support.hub import Hub, Repository, run_hub
from tests.support.lsp_editor import Script, StartEditor, build_capabilities, wait_for

pytestmark = pytest.mark.e2e

_NAME = "someone/python-6m"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the default model under another name."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    with run_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        files = {path.name: path.read_bytes() for path in find_default_model().iterdir() if path.is_file()}
        hub.repositories[_NAME] = Repository.of(files)
        yield hub


def _lsp(tmp_path: Path, *arguments: str) -> Script:
    command = (sys.executable, "-m", "midtoken", "lsp", f"--state-dir={tmp_path / 'state'}", *arguments)
    return Script(command, Path(__file__).parents[2], tmp_path / "no log")


async def test_a_model_that_is_named_in_the_settings_is_downloaded_and_completes(
    hub: Hub, start_editor: StartEditor, tmp_path: Path
) -> None:
    editor = await start_editor(_lsp(tmp_path), build_capabilities(shows_progress=True), {"model": _NAME})
    editor.open("class Node:\n    pass\n\n\ndef make():\n    return Nod")
    assert await editor.ask(5, 14) is None
    await wait_for(lambda: any(report[:2] == (None, "ready") for report in editor.reports), 60)
    assert (await editor.ghost(5, 14)).insert_text == "Node"
    told = [report[3] for report in editor.reports if report[2] == "downloading"]
    assert len(hub.requests) == 8
    assert told[0] == "downloading someone/python-6m (licence: apache-2.0), 0 of 14 MB (0 %)"
    assert "cancellable" in str(editor.progress)


def test_a_model_is_downloaded_listed_and_tried_in_the_terminal(hub: Hub, tmp_path: Path) -> None:
    assert _NAME in hub.repositories
    folder = _run("models", "get", _NAME).stdout.strip()
    assert f"  {_NAME:36}  0.01 GB, commit {Path(folder).name[:7]}, {folder}" in _run("models").stdout.splitlines()
    shown = _run("models", "try", _NAME, f"--state-dir={tmp_path / 'state'}").stdout
    figure = r"[0-9,.]+"
    expected = f"""ready            {figure} s
memory           {figure} GB
read 500 tokens  {figure} ms, once for each place
first text       {figure} ms after a key
20 characters    {figure} ms after a key
(Quick|Usable|Too slow).*
"""
    assert re.fullmatch(expected, shown)


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "midtoken", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
