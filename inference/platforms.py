"""What differs between systems, of which only Linux is tried, and how this copy of midtoken was installed."""

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

# The arguments of Popen for a process that Ctrl-C in the terminal, and its closing, do not reach.
DETACHED: dict[str, Any] = {"creationflags": 0x208} if sys.platform == "win32" else {"start_new_session": True}


def is_own(status: os.stat_result) -> bool:
    """Returns whether a file belongs to this user. Windows says it otherwise; there, a profile is closed to others."""
    return sys.platform == "win32" or status.st_uid == os.geteuid()


def call_at_signals(call: Callable[[], object], *names: str) -> None:
    """Calls the function in the running event loop when a signal arrives. Windows has only Ctrl-C, which cancels it."""
    for name in names if sys.platform != "win32" else ():
        asyncio.get_running_loop().add_signal_handler(signal.Signals[name], call)


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
