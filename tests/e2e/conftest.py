"""Fixtures of the end-to-end tests.

- `scripted_server`, `real_server`: Triton, and servers that all tests of the session share. `embedded_scripted_server`
  and `embedded_real_server` are servers without Triton.
- `any_scripted_server`, `any_server`: the test runs on both runtimes.
- `own_server`: a scripted server for one test, which may stop or break it.
- `write_script`, `start_editor`: a language server with a scripted model, and an editor that is connected to it.
- `own_lsp`: a language server that starts a completion server of its own.
- `open_editor`: a real Neovim with a language server. `edit`: a file of its own in the Neovim of the session, whose
  language server has the model of `script`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from inference.platforms import IMPORT_ROOT
from tests.support.lsp_editor import LspEditor, Script, StartEditor, WriteScript, build_capabilities, make_script
from tests.support.neovim_editor import RULES, Edit, Editor, OpenEditor, open_file, run_neovim
from tests.support.servers import EMBEDDED, RunningServer, end_servers, find_real, make_scripted, run_server

# Of the scripted servers. A shell would take it apart, and it is longer than the path of a socket may be.
_FOLDER = f"my (own) folder {100 * 'a'}"


@pytest.fixture
def write_script(tmp_path: Path) -> WriteScript:
    """A function that writes rules to a file and returns their Script."""
    return partial(make_script, tmp_path)


@pytest.fixture
async def start_editor() -> AsyncIterator[StartEditor]:
    """A function that starts the Script's language server and returns a connected editor."""
    editors: list[LspEditor] = []

    async def start(
        script: Script, capabilities: types.ClientCapabilities | None = None, options: Any = None, settings: Any = None
    ) -> LspEditor:
        client = LanguageClient("editor", "1")
        await client.start_io(*script.command, cwd=script.folder)
        editor = LspEditor(client)
        editors.append(editor)
        editor.settings = settings
        await editor.start(capabilities or build_capabilities(), options)
        return editor

    yield start
    for editor in editors:
        await editor.leave()
        await editor.client.stop()  # type: ignore[no-untyped-call]  # pygls
        await asyncio.sleep(0.01)  # in which the pipes are closed


@pytest.fixture
def own_lsp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """A language server that starts a completion server, with a model of the test's own folders."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "HF_HOME", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    command = (sys.executable, "-m", "midtoken", "lsp", f"--state-dir={tmp_path / 'state'}")
    yield Script(command, IMPORT_ROOT, tmp_path / "no log")
    end_servers(tmp_path)  # they would wait for other editors


@pytest.fixture
def open_editor(tmp_path: Path) -> Iterator[OpenEditor]:
    """A function that opens a Python file with the given lines in Neovim, with the given language server command.

    The options are those of the plugin.
    """
    with ExitStack() as stack:

        def open_editor(command: Sequence[str], lines: Sequence[str], **options: Any) -> Editor:
            editor = stack.enter_context(run_neovim(tmp_path))
            editor.lua("require('midtoken').setup(...)", {"cmd": list(command), **options})
            open_file(editor, tmp_path / "file.py", lines)
            return editor

        yield open_editor


@pytest.fixture(scope="session")
def neovim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Editor, Script]]:
    folder = tmp_path_factory.mktemp("neovim")
    script = make_script(folder, *RULES)
    with run_neovim(folder) as editor:
        editor.lua("require('midtoken').setup(...)", {"cmd": script.command})
        yield editor, script


@pytest.fixture
def script(neovim: tuple[Editor, Script]) -> Script:
    """The model that completes what `edit` opens, with the events of this test."""
    neovim[0].type_and_wait("<Esc>")  # what the test before has asked for is cancelled
    neovim[1].log.unlink(missing_ok=True)
    return neovim[1]


@pytest.fixture
def edit(neovim: tuple[Editor, Script], tmp_path: Path) -> Edit:
    """A function that opens a Python file with the given lines, and nothing else, in the Neovim of the session."""

    def edit(lines: Sequence[str]) -> Editor:
        editor = neovim[0]
        editor.type_and_wait("<Esc>")
        for command in ("%bwipeout!", "messages clear", "silent! iunmap <Tab>", "unlet! g:midtoken_enabled"):
            editor.nvim.command(command)
        open_file(editor, tmp_path / "file.py", lines)
        return editor

    return edit


@pytest.fixture(scope="session")
def scripted_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with scripted models, shared by the whole session: see `tests.support.fakes.ScriptedEngine`.

    Not for tests that stop it, kill a part of it or overload it. Other tests use it before and after, so compare its
    metrics, logs and processes with those at the start of the test.
    """
    folder = tmp_path_factory.mktemp(_FOLDER)
    with run_server(make_scripted(folder), folder / "state") as server:
        yield server


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with the bundled model, shared by the whole session. The rules of `scripted_server` apply."""
    with run_server(find_real(), tmp_path_factory.mktemp("real")) as server:
        yield server


@pytest.fixture(scope="session")
def embedded_scripted_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """As `scripted_server`, without Triton."""
    folder = tmp_path_factory.mktemp(_FOLDER)
    with run_server(make_scripted(folder), folder / "state", runtime=EMBEDDED) as server:
        yield server


@pytest.fixture(scope="session")
def embedded_real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """As `real_server`, without Triton."""
    with run_server(find_real(), tmp_path_factory.mktemp("embedded_real"), runtime=EMBEDDED) as server:
        yield server


def _run_on(*names: str) -> Any:
    """Returns a fixture with which a test runs once on each of these servers."""

    @pytest.fixture(params=names)
    def find_server(request: pytest.FixtureRequest) -> Any:
        return request.getfixturevalue(request.param)

    return find_server


_SCRIPTED = ("scripted_server", "embedded_scripted_server")
any_scripted_server = _run_on(*_SCRIPTED)
any_server = _run_on(*_SCRIPTED, "real_server", "embedded_real_server")


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A scripted server for one test, which may stop or break it."""
    with run_server(make_scripted(tmp_path), tmp_path / "state") as server:
        yield server
