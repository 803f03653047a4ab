"""Whether the server would answer now, by a completion of the last seconds."""

import asyncio
from asyncio import timeout

from inference.errors import ServerError, ServerUnreachableError
from inference.serving.launcher import check_completion, check_heartbeats

_MAX_STALL_S = 10.0  # without progress; a heartbeat of a model with longer steps counts them as shorter
_PATIENCE_S = 3.0  # with one answer
_REUSE_S = 1.0  # a check that is not older is not made again


class Readiness:
    """Checks the server when it is asked, once for all who ask at the same time.

    The model answers a check at once if a completion has succeeded in the last two seconds; otherwise it completes one
    token. A busy server may take longer for that: it is ready as long as it makes progress, and also while it refuses
    requests because it is overloaded.
    """

    def __init__(self) -> None:
        self.url = ""  # of the server, once it has been started
        self._is_ending = False
        self._check: asyncio.Task[str] | None = None
        self._checked_at = 0.0

    def end(self) -> None:
        """From now on the server is not ready: it ends once its streams have."""
        self._is_ending = True

    async def find_problem(self) -> str:
        """Returns why a completion would not be answered; empty if it would."""
        if self._is_ending:
            return "the server is ending; running completions may finish"
        if not self.url:
            return "the server is starting"
        now = asyncio.get_running_loop().time()
        if self._check is None or (self._check.done() and now - self._checked_at > _REUSE_S):
            self._check, self._checked_at = asyncio.ensure_future(_check(self.url)), now
        return await asyncio.shield(self._check)


async def _check(url: str) -> str:
    try:
        await check_heartbeats(url, _MAX_STALL_S, _PATIENCE_S)
        async with timeout(_PATIENCE_S):
            await check_completion(url)
    except TimeoutError:
        return ""  # it is busy, and makes progress
    except ServerUnreachableError:
        return "the server does not answer: it has ended, and is started again"
    except ServerError as error:
        return str(error)
    return ""
