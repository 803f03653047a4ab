"""The offer to download a model that knows all languages. The user is asked, and nothing is done unasked."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from inference.errors import MidtokenError
from lsp_server.backend import OnDownload
from lsp_server.errors import to_midtoken_error
from lsp_server.status import Status

_DOWNLOAD, _NO = "Download", "No"


@dataclass(frozen=True, slots=True)
class OfferedModel:
    """What is offered: what the user reads, and what an answer does."""

    question: str
    command: str  # does the same in a terminal
    find_default: Callable[[], str | None]  # the model that the user has chosen; None for the bundled one
    is_open: Callable[[], bool]  # False once this user has answered, in another editor or a terminal
    download: Callable[[OnDownload], Awaitable[object]]  # and makes it the default. Raises MidtokenError
    decline: Callable[[], None]  # remembers that nobody is asked again. Raises MidtokenError


class ModelOffer:
    """Asks, and downloads the model while the model that is there goes on."""

    def __init__(self, offered: OfferedModel, status: Status, on_downloaded: Callable[[], None]) -> None:
        """`on_downloaded`: what is to be done when the offered model is the default."""
        self._offered, self._status, self._on_downloaded = offered, status, on_downloaded
        self._asking: asyncio.Task[None] | None = None

    def make(self) -> bool:
        """Asks the user, once and unless the answer is known. Returns True until what was answered is done."""
        if self._asking is None and self._offered.is_open():
            self._asking = asyncio.create_task(self._ask())
        return self._asking is not None and not self._asking.done()

    async def close(self) -> None:
        """Ends a download. Waits for that."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking}, timeout=0.1)

    async def _ask(self) -> None:
        try:
            answer = await self._status.ask(self._offered.question, (_DOWNLOAD, _NO), self._offered.command)
            if answer == _DOWNLOAD:
                await self._download()
            elif answer == _NO and self._offered.is_open():
                self._offered.decline()
        except Exception as error:  # nobody awaits this task's result, so every error is reported here
            failure = error if isinstance(error, MidtokenError) else to_midtoken_error(error)
            self._status.show_error(f"{failure}. To try again: {self._offered.command}")

    async def _download(self) -> None:
        progress = self._status.open_progress("downloading the model", lambda: download.cancel())
        download = asyncio.ensure_future(self._offered.download(progress.report))
        end = "the model was not downloaded"
        try:
            await download
            end = "the model was downloaded"
            self._on_downloaded()
        except asyncio.CancelledError:
            end = f"the download was cancelled. To try again: {self._offered.command}"
        finally:
            download.cancel()
            progress.end(end)
            self._status.log(end)
