"""Installations with `pip install midtoken` and `pip install 'midtoken[local]'`, outside the source tree."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.installations import Installation, install_wheel
from tests.support.lsp_editor import LspEditor, Script, wait_for
from tests.support.servers import EMBEDDED, TRITON, RunningServer, end_servers

pytestmark = pytest.mark.e2e

_SOURCE = "class Node:\n    def __init__(self, value):\n        self.value = value\n\n\nreturn Nod"
StartEditor = Callable[..., Awaitable[LspEditor]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(_SOURCE)
    return path


def _make_script(installation: Installation, *arguments: str) -> Script:
    command = (str(installation.midtoken), "lsp", *arguments)
    return Script(command, installation.folder, installation.folder / "model.log")


def test_a_light_installation_completes_with_a_server_elsewhere(
    light_installation: Installation, real_server: RunningServer, source: Path
) -> None:
    arguments = ("complete", f"{source}:6", "--extent=single_line", "--server", real_server.url)
    done = light_installation.run(light_installation.midtoken, *arguments)
    assert done.stdout.startswith("e"), done.stderr


async def test_a_light_installation_runs_the_language_server(
    light_installation: Installation, real_server: RunningServer, start_editor: StartEditor
) -> None:
    editor = await start_editor(_make_script(light_installation, "--server", real_server.url))
    editor.open(_SOURCE[:-1])
    await wait_for(lambda: any("completion server ready" in text for text in editor.logged))
    editor.edit(5, 9, "d")
    item = await editor.ghost(5, 10)
    assert item is not None
    assert str(item.insert_text).startswith("Node")


async def test_a_light_language_server_without_a_server_says_which_extra_to_install(
    light_installation: Installation, start_editor: StartEditor
) -> None:
    editor = await start_editor(_make_script(light_installation))
    editor.open(_SOURCE)
    await editor.ask(5, 10)
    await wait_for(lambda: bool(editor.shown))
    assert "cannot run here without onnx" in editor.shown[0]
    assert "pip install 'midtoken[local]', or name a running server with --server" in editor.shown[0]


@pytest.mark.parametrize("runtime", [TRITON, EMBEDDED])
async def test_an_installation_with_the_extra_local_completes_and_shows_ghost_text(
    wheel: Path, tmp_path: Path, source: Path, start_editor: StartEditor, runtime: str
) -> None:
    installation = install_wheel(wheel, tmp_path / "local", ["local"])
    arguments = (runtime, f"--state-dir={tmp_path / 'state'}")
    done = installation.run(installation.midtoken, "complete", f"{source}:6", "--extent=single_line", *arguments)
    assert done.stdout.startswith("e"), done.stderr
    report = installation.run(installation.midtoken, "doctor", *arguments)
    assert ("without Triton" in report.stdout) == (runtime == EMBEDDED), report.stdout
    assert "✗" not in report.stdout

    editor = await start_editor(_make_script(installation, *arguments))
    editor.open(_SOURCE)
    await wait_for(lambda: any("completion server ready" in text for text in editor.logged))
    assert str((await editor.ghost(5, 10)).insert_text).startswith("Node")
    await editor.leave()
    end_servers(tmp_path / "state")
