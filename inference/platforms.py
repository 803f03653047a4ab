"""This machine: its loopback address, the user's files, signals, and how this copy of midtoken was installed."""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import inference

ADDRESS = "127.0.0.1"  # the only one at which anything of ours listens

# The folder from which `import inference` works. Processes that midtoken starts must import the same code.
IMPORT_ROOT = Path(inference.__file__).resolve().parents[1]


def is_own(status: os.stat_result) -> bool:
    """Returns whether a file belongs to this user."""
    return status.st_uid == os.geteuid()


def call_at_signals(call: Callable[[], object], *names: str) -> None:
    """Calls the function in the running event loop when a signal arrives."""
    for name in names:
        asyncio.get_running_loop().add_signal_handler(signal.Signals[name], call)


def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Runs the coroutine. SIGINT, SIGTERM and SIGHUP cancel it, and the call returns when it has ended."""

    async def run() -> None:
        task = asyncio.ensure_future(work)
        call_at_signals(task.cancel, "SIGINT", "SIGTERM", "SIGHUP")
        await task

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(run())


def find_install_command(extra: str) -> str:
    """Returns the command that adds the packages of an extra of pyproject.toml to this copy of midtoken.

    It names what this copy was installed from (PEP 610), because no package index has midtoken: whoever registered
    the name there could run code here.
    """
    from importlib.metadata import distributions  # here, because it is slow to import

    records = [each.read_text("direct_url.json") for each in distributions(name="midtoken")]
    origin: dict[str, Any] = next((json.loads(each) for each in records if each), {})
    url = urlsplit(origin.get("url", ""))
    source, place = Path(unquote(url.path)), ""
    if url.scheme != "file" or not source.exists():
        source, place = Path(), " in a checkout of midtoken"
    option = "--editable " if origin.get("dir_info", {}).get("editable") else ""
    return f"{sys.executable or 'python3'} -m pip install {option}{shlex.quote(f'{source}[{extra}]')}{place}"
