"""The interface to the completion server, and the one connection that all documents share."""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Protocol

from inference.errors import ModelError
from inference.protocol.completion import CompletionChunk, CompletionRequest, Description
from lsp_server.errors import to_connect_error, to_midtoken_error
from lsp_server.guard import Cleared
from lsp_server.no_suggestion import NoSuggestion, Reason
from lsp_server.settings import Settings
from lsp_server.status import Status


class CompletionBackend(Protocol):
    """Answers completion requests. `midtoken.connection.Connection` implements it."""

    description: Description  # of the server, as it was when it was connected

    def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks of the answer. `aclose`, or cancelling the task that iterates, ends it in the model too.

        Raises MidtokenError. A ServerUnreachableError means that the connection is lost. Any other error concerns only
        this request.
        """

    async def close(self) -> None:
        """Closes the connection. Open streams end with CancelledError."""


OnDownload = Callable[[str, int], None]  # gets a text for the user, and how much there is, in percent
# Gets the settings, of which `model` and `context` override the command line.
Connect = Callable[[Settings, OnDownload], Awaitable[CompletionBackend]]


class Connector:
    """Connects the one backend of all documents in the background, and again after the connection is lost."""

    def __init__(
        self,
        connect: Connect,
        status: Status,
        on_connected: Callable[[], None] = lambda: None,
        grace_s: float = 0.2,
        retry_s: float = 1.0,
        close_s: float = 0.1,
    ) -> None:
        """`connect` finds or starts the completion server. It may take long, and may raise any Exception.

        `on_connected` is called each time, when `description` is known.

        `get` waits for it for at most `grace_s`, which is enough if the completion server is already running. Attempts
        start at least `retry_s` apart. `close` waits for `close_s`, because editors kill a server that ends slowly.
        """
        self.description: Description | None = None  # of the server that was connected last, since `restart`
        self._connect, self._on_connected = connect, on_connected
        self._settings = Settings()
        self._status = status
        self._grace_s, self._retry_s, self._close_s = grace_s, retry_s, close_s
        self._backend: CompletionBackend | None = None
        self._starting: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._may_start_at_s = 0.0  # infinite after a ModelError or a cancelled download, until `restart`
        self._failure = "the connection to the completion server was lost"  # why there is no backend

    @property
    def unavailable(self) -> NoSuggestion:
        """Why `get` returned None."""
        if self._starting is not None:
            return NoSuggestion(Reason.STARTING, "it is not connected to the completion server yet")
        return NoSuggestion(Reason.UNREACHABLE, self._failure)

    def start(self) -> None:
        """Starts to connect. Does nothing if it is connected or connecting, or started less than `retry_s` ago.

        After a ModelError, or when the user has cancelled a download, it does nothing until `restart`.
        """
        now_s = asyncio.get_running_loop().time()
        if self._backend is None and self._starting is None and now_s >= self._may_start_at_s:
            self._may_start_at_s = now_s + self._retry_s
            self._starting = asyncio.create_task(self._start())

    def restart(self, settings: Settings) -> None:
        """Ends the connection, or the attempt to connect. The next `start` connects anew, with other settings."""
        self._settings, self.description = settings, None
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        if self._backend is not None:
            self.drop(self._backend)
        self._may_start_at_s = 0.0

    async def get(self) -> CompletionBackend | None:
        """Returns the backend, or None while there is none. The user has been told why."""
        self.start()
        if self._starting is not None:
            await asyncio.wait({self._starting}, timeout=self._grace_s)
        return self._backend

    async def wait(self) -> None:
        """Waits until it is connected or cannot be."""
        if self._starting is not None:
            await asyncio.wait({self._starting})

    def is_current(self, backend: CompletionBackend) -> bool:
        """Returns False for a backend that was dropped."""
        return self._backend is backend

    def drop(self, backend: CompletionBackend) -> None:
        """Closes a backend whose connection is lost. The next `get` connects again.

        Does nothing for a backend that was dropped before.
        """
        if self._backend is backend:
            self._backend = None
            # In its own task: closing the document that noticed the loss must not cancel it.
            task = asyncio.create_task(self._close_backend(backend))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Cancels an attempt to connect, closes the backend, and waits for both, for at most `close_s`."""
        ending = set[asyncio.Task[None]]() if self._starting is None else {self._starting}
        self.restart(self._settings)
        if ending := ending | self._closing:
            await asyncio.wait(ending, timeout=self._close_s)

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        notice = loop.call_later(self._grace_s, self._status.starting)
        try:
            self._backend = await self._connect(self._settings, partial(self._status.downloading, self._cancel))
            self.description = self._backend.description
            self._on_connected()
            self._failure = "the connection to the completion server was lost"
            self._status.ready(loop.time() - started_s, self.description.runs_as)
        except asyncio.CancelledError:
            self._status.start_cancelled(self._failure if self._may_start_at_s == math.inf else "")
            raise
        except Exception as error:  # nobody awaits this task's result, so every error is reported here
            failure = to_connect_error(error)
            if isinstance(failure, ModelError):
                self._may_start_at_s = math.inf
                failure = ModelError(f"{failure}. Correct that, then restart the language server")
            self._failure = str(failure)
            self._status.not_started(failure)
        finally:
            notice.cancel()
            if self._starting is asyncio.current_task():  # and not a newer one
                self._starting = None

    def _cancel(self) -> None:
        """The user has cancelled the download."""
        if self._starting is not None:
            self._may_start_at_s = math.inf
            self._failure = "the download of the model was cancelled; it goes on when the language server is restarted"
            self._starting.cancel()

    async def _close_backend(self, backend: CompletionBackend) -> None:
        try:
            await backend.close()
        except Exception as error:  # nobody awaits this task's result, so every error is reported here
            self._status.failed(to_midtoken_error(error))
