"""The offer to download a model that knows all languages. The user is asked once, and nothing is done unasked."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from inference.errors import MidtokenError
from lsp_server.backend import OnDownload
from lsp_server.errors import to_midtoken_error
from lsp_server.status import Status

_DOWNLOAD, _NOT_NOW, _NEVER = "Download", "Not now", "Never"


@dataclass(frozen=True, slots=True)
class OfferedModel:
    """What is offered: what the user reads, and what an answer does."""

    question: str
    command: str  # does the same in a terminal
    download: Callable[[OnDownload], Awaitable[None]]  # and makes it the default. Raises MidtokenError
    decline: Callable[[], None]  # remembers that nobody is asked again


class ModelOffer:
    """Asks, and downloads the model while the model that is there goes on."""

    def __init__(self, offered: OfferedModel, status: Status, on_downloaded: Callable[[], None]) -> None:
        """`on_downloaded`: what is to be done when the offered model is the default."""
        self._offered, self._status, self._on_downloaded = offered, status, on_downloaded
        self._asking: asyncio.Task[None] | None = None
        self._downloading: asyncio.Task[None] | None = None

    def make(self) -> bool:
        """Asks the user. Does nothing the next time, and returns False."""
        if self._asking is not None:
            return False
        self._asking = asyncio.create_task(self._ask())
        return True

    def close(self) -> None:
        """Cancels a download; the next one goes on where it was."""
        for task in (self._asking, self._downloading):
            if task is not None:
                task.cancel()

    async def _ask(self) -> None:
        answers = (_DOWNLOAD, _NOT_NOW, _NEVER)
        answer = await self._status.ask(self._offered.question, answers, self._offered.command)
        if answer == _NEVER:
            self._offered.decline()
        elif answer == _DOWNLOAD:
            self._downloading = asyncio.create_task(self._download())

    async def _download(self) -> None:
        cancel = asyncio.current_task().cancel  # type: ignore[union-attr]  # it is one
        try:
            await self._offered.download(partial(self._status.downloading_beside, cancel))
        except asyncio.CancelledError:
            self._status.end_progress("the download was cancelled; it goes on where it was when it is begun again")
        except Exception as error:  # nobody awaits this task's result, so every error is reported here
            failure = error if isinstance(error, MidtokenError) else to_midtoken_error(error)
            self._status.end_progress("the model was not downloaded")
            self._status.show_error(f"the model was not downloaded, and the one that is here goes on: {failure}")
        else:
            self._status.end_progress("the model was downloaded")
            self._on_downloaded()
