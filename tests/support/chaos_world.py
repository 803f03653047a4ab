"""Worlds to break: an editor, its language server and a completion server, with whatever is between them.

- `own`: the language server starts the host
- `remote`: `--server`, behind a proxy
- `engine`: its own host heals in front of llama.cpp's server behind a proxy
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks.baselines.servers import run_llama_server
from midtoken.installed import find_default_model
from tests.support.chaos_editor import ChaosEditor, start_editor
from tests.support.chaos_proxy import ChaosProxy, run_proxy
from tests.support.servers import EMBEDDED, Served, end_servers, find_processes, make_slow, run_server

_CALM_S = 60.0
PASS_S = 0.02  # long enough for a fault in the middle of an answer


class Kind(StrEnum):
    OWN = "own"
    REMOTE = "remote"
    ENGINE = "engine"


_HOST = "inference.hosting.host"  # in its command line


@dataclass(slots=True)
class World:
    """What can be broken."""

    name: str  # for figures
    served: Served
    folder: Path  # whose name is in the command line of each process
    editor: ChaosEditor
    proxy: ChaosProxy | None
    num_hosts: int  # while nothing is wrong

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    def find_hosts(self) -> list[int]:
        """The processes of the host that the language server has started."""
        return [pid for pid, command in find_processes(self.state_dir).items() if _HOST in command]

    async def wait_until_calm(self) -> float:
        """Types until there is one host, and none that is ending. Returns the longest wait for a text.

        A host that is about to end may answer first.
        """
        longest_s = 0.0
        async with asyncio.timeout(_CALM_S):
            while len(self.find_hosts()) != self.num_hosts:
                longest_s = max(longest_s, await self.editor.wait_until_back(_CALM_S) or 0.0)
                await asyncio.sleep(0.1)
        return longest_s

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the host."""
        for pid in self.find_hosts():
            os.kill(pid, number)

    @property
    def is_alive(self) -> bool:
        """Whether the language server lives."""
        return self.editor.process.returncode is None


@asynccontextmanager
async def open_world(folder: Path, kind: Kind, runtime: str = EMBEDDED) -> AsyncIterator[World]:
    """Runs one inside the block, in which the editor has learned what is right. `runtime`: of a remote server."""
    folder.mkdir()
    served, state_dir = make_slow(folder, pass_s=PASS_S), folder / "state"
    state_dir.mkdir()
    async with AsyncExitStack() as stack:
        proxy, arguments = None, [f"--model={served.model_dir}"]
        if kind is Kind.REMOTE:
            server = stack.enter_context(run_server(served, folder / "server", runtime=runtime))
            proxy = await stack.enter_async_context(run_proxy(server.url))
            arguments = [f"--server=127.0.0.1:{proxy.port}"]
        elif kind is Kind.ENGINE:
            url = stack.enter_context(run_llama_server(find_default_model(), folder))
            proxy = await stack.enter_async_context(run_proxy(url))
            arguments += [f"--engine=http://127.0.0.1:{proxy.port}"]
        command = [sys.executable, "-m", "midtoken", "lsp", f"--state-dir={state_dir}", *arguments]
        command += [] if kind is Kind.REMOTE else [f"--model-repository={served.repository}"]
        editor = await start_editor(command)
        stack.push_async_callback(_end, editor, folder)
        await editor.learn()
        name = f"{kind}_{runtime.removeprefix('--runtime=')}"
        yield World(name, served, folder, editor, proxy, int(kind is not Kind.REMOTE))


async def _end(editor: ChaosEditor, folder: Path) -> None:
    if editor.process.returncode is None:
        await editor.leave()
    end_servers(folder / "state")
