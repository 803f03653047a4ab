"""One setting brings a model from a hub, and completions start by themselves when it is here."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from midtoken.installed import find_bundled_model
from tests.support.hub import Faults, Hub, Repository, run_hub
from tests.support.lsp_editor import Script
from tests.support.neovim_editor import NODE, OpenEditor

pytestmark = pytest.mark.e2e

_NAME = "someone/python-6m"


@pytest.fixture
def hub(own_lsp: Script, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the bundled model under another name."""
    assert own_lsp  # its folders are the test's, and its servers end after the hub
    with run_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        files = {path.name: path.read_bytes() for path in find_bundled_model().iterdir() if path.is_file()}
        hub.repositories[_NAME] = Repository.of(files)
        yield hub


def test_a_model_is_downloaded_and_listed_in_the_terminal(hub: Hub) -> None:
    assert _NAME in hub.repositories
    folder = _run("models", "get", _NAME).stdout.strip()
    listed = f"  {_NAME:40}  0.01 GB, commit {Path(folder).name[:7]}\n    {folder}\n"
    assert listed in _run("models").stdout


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "midtoken", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)


def test_neovim_shows_the_download_and_then_ghost_text(hub: Hub, own_lsp: Script, open_editor: OpenEditor) -> None:
    hub.faults = Faults(delay_s=3)
    editor = open_editor(own_lsp.command, NODE, model=_NAME)
    downloading = "midtoken: starting (downloading someone/python-6m (licence: apache-2.0), 1 of 14 MB (3 %))"
    editor.wait_for(lambda: editor.status, downloading, 60)
    editor.wait_for(lambda: editor.status, "midtoken: ready", 60)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e")
