"""What differs between systems. Only Linux is tried."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

# The arguments of Popen for a process that Ctrl-C in the terminal, and its closing, do not reach.
DETACHED: dict[str, Any] = {"creationflags": 0x208} if sys.platform == "win32" else {"start_new_session": True}


def is_own(status: os.stat_result) -> bool:
    """Returns whether a file belongs to this user. Windows says it otherwise; there, a profile is closed to others."""
    return sys.platform == "win32" or status.st_uid == os.geteuid()


def call_at_signals(call: Callable[[], object], *names: str) -> None:
    """Calls the function in the running event loop when a signal arrives. Windows has only Ctrl-C, which cancels it."""
    for name in names if sys.platform != "win32" else ():
        asyncio.get_running_loop().add_signal_handler(signal.Signals[name], call)
