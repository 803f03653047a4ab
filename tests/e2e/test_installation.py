"""Installations with `pip install midtoken` and `pip install 'midtoken[server]'`, outside the source tree."""

import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.serving.shared_server import ServerEntry
from tests.support.installations import Installation, install_wheel
from tests.support.lsp_editor import LspEditor, Script, wait_for
from tests.support.servers import RunningServer, find_free_endpoint, wait_until

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
    arguments = ("complete", f"{source}:6", "--extent=single_line", "--server", real_server.endpoint.grpc_url)
    done = light_installation.run(light_installation.midtoken, *arguments)
    assert done.stdout.startswith("e"), done.stderr


async def test_a_light_installation_runs_the_language_server(
    light_installation: Installation, real_server: RunningServer, start_editor: StartEditor
) -> None:
    editor = await start_editor(_make_script(light_installation, "--server", real_server.endpoint.grpc_url))
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
    assert "pip install 'midtoken[server]', or name a running server with --server" in editor.shown[0]


@pytest.fixture
def installed_server(wheel: Path, tmp_path: Path) -> Iterator[tuple[Installation, str]]:
    """An installation with the extra `server`, and the address of its server, which has the default model."""
    installation = install_wheel(wheel, tmp_path / "server", ["server"])
    state_dir, endpoint = tmp_path / "state", find_free_endpoint()
    command = [str(installation.midtoken), "serve", *endpoint.arguments, f"--state-dir={state_dir}"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        model_dir = installation.site_packages / "midtoken" / "default_model"
        entry = ServerEntry.create(state_dir, EngineConfig(model_dir))
        wait_until(lambda: entry.find() is not None or process.poll() is not None)
        assert entry.find() is not None, process.communicate()[1]
        yield installation, endpoint.grpc_url
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_an_installation_with_the_server_extra_serves_and_completes(
    installed_server: tuple[Installation, str], source: Path
) -> None:
    installation, url = installed_server
    arguments = ("complete", f"{source}:6", "--extent=single_line", "--server", url)
    done = installation.run(installation.midtoken, *arguments)
    assert done.stdout.startswith("e"), done.stderr
