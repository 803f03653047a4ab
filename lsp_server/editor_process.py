"""The process of the editor (`processId` of LSP's initialize). The language server ends when it has ended.

Some editors end without closing stdin, or another process holds it open.
"""

import asyncio
import os
from collections.abc import Callable


async def wait_for_end(find_id: Callable[[], int | None], poll_s: float = 1.0) -> None:
    """Returns when the process has ended; never while `find_id` returns none."""
    while (process_id := find_id()) is None or is_there(process_id):
        await asyncio.sleep(poll_s)


def is_there(process_id: int) -> bool:
    """Returns whether the process exists here. If not, its id is one of another machine or container."""
    try:
        os.kill(process_id, 0)
    except PermissionError:  # it is another user's
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
