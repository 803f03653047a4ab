"""Installations of the wheel, without extras and with the extra `local`, outside the source tree."""

from pathlib import Path

import pytest

from tests.support.installations import Installation, install_wheel
from tests.support.lsp_editor import LspEditor, Script, StartEditor, wait_for
from tests.support.servers import RunningServer, end_servers

pytestmark = pytest.mark.e2e

_SOURCE = "class Node:\n    def __init__(self, value):\n        self.value = value\n\n\nreturn Nod"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(_SOURCE)
    return path


@pytest.fixture(scope="module")
def local_installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install_wheel(wheel, tmp_path_factory.mktemp("local"), ["local"])


async def _open(start_editor: StartEditor, installation: Installation, *arguments: str) -> LspEditor:
    command = (str(installation.midtoken), "lsp", *arguments)
    editor = await start_editor(Script(command, installation.folder, installation.folder / "model.log"))
    editor.open(_SOURCE)
    return editor


async def _complete(editor: LspEditor) -> str:
    await wait_for(lambda: any("completion server ready" in text for text in editor.logged), 60)
    return str((await editor.ghost(5, 10)).insert_text)


async def test_a_light_installation_completes_and_shows_ghost_text_with_a_server_elsewhere(
    light_installation: Installation, embedded_real_server: RunningServer, source: Path, start_editor: StartEditor
) -> None:
    server = f"--server={embedded_real_server.url}"
    done = light_installation.run(
        light_installation.midtoken, "complete", f"{source}:6", "--extent=single_line", server
    )
    assert done.stdout.startswith("e"), done.stderr
    assert (await _complete(await _open(start_editor, light_installation, server))).startswith("Node")


async def test_a_light_language_server_without_a_server_says_which_extra_to_install(
    light_installation: Installation, start_editor: StartEditor
) -> None:
    editor = await _open(start_editor, light_installation)
    await editor.ask(5, 10)
    await wait_for(lambda: bool(editor.shown))
    assert "cannot run here without aiohttp, onnx" in editor.shown[0]
    assert ".whl[local]', or name a running server with --server" in editor.shown[0]


async def test_an_installation_with_the_extra_local_completes_and_shows_ghost_text(
    local_installation: Installation, tmp_path: Path, source: Path, start_editor: StartEditor
) -> None:
    run, midtoken, state = local_installation.run, local_installation.midtoken, f"--state-dir={tmp_path / 'state'}"
    done = run(midtoken, "complete", f"{source}:6", "--extent=single_line", state)
    assert done.stdout.startswith("e"), done.stderr
    report = run(midtoken, "doctor", state).stdout
    assert "✗" not in report, report
    editor = await _open(start_editor, local_installation, state)
    assert (await _complete(editor)).startswith("Node")
    await editor.leave()
    end_servers(tmp_path / "state")
