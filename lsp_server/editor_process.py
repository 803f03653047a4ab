"""The process of the editor (`processId` of LSP's initialize). The language server ends when it has ended."""

import asyncio
import os


class EditorProcess:
    """Some editors end without closing stdin, or another process holds it open."""

    def __init__(self, poll_s: float = 1.0) -> None:
        self._id: int | None = None
        self._poll_s = poll_s

    def watch(self, process_id: int | None) -> None:
        """Sets the process. One that does not exist is ignored: its id is one of another machine or container."""
        self._id = process_id if process_id is not None and _exists(process_id) else None

    async def wait(self) -> None:
        """Returns when the process has ended; never without one."""
        while self._id is None or _exists(self._id):
            await asyncio.sleep(self._poll_s)


def _exists(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except PermissionError:  # it is another user's
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
