"""The connection of a subcommand to a completion server: the one that `--server` names, or the user's shared host.

An import contract gives no other module a client, so that each request that leaves the process is `Cleared`.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Self

from inference.client.client import Client
from inference.client.local_host import ensure_served
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.completion import CompletionChunk, CompletionRequest, Description
from lsp_server.privacy.guard import Cleared
from lsp_server.project.choice import find_max_bytes
from lsp_server.settings import Settings
from midtoken.models import OnDownload, fetch_model
from midtoken.server import ServerAddress, ServerArguments

_WAITING = "waiting for the completion server (its first start takes some seconds) …"
_IDLE_S = 900.0  # the host runs this long without clients, in case an editor is opened again


class Connection:
    """A client that sends only what is cleared. It keeps a shared host running, until it is closed."""

    def __init__(self, address: ServerAddress) -> None:
        """Use `open`."""
        self._client = Client(address.url, address.tls, key=address.key)
        self.description = Description()  # of the server, as it was when it was connected

    @classmethod
    async def open(
        cls,
        options: argparse.Namespace,
        on_progress: Callable[[str], None] = lambda _line: None,
        on_download: OnDownload = lambda _text, _percentage: None,
        idle_s: float = _IDLE_S,
    ) -> Self:
        """Connects, and waits until the server answers. A model of a hub is downloaded first.

        A shared host that is started ends when it has had no client for `idle_s`.

        Raises UsageError, ModelError, LaunchError or ServerError.
        """
        address = ServerAddress.from_options(options)
        if address is None:
            await fetch_model(options.model, on_download)
            found = await asyncio.to_thread(ServerArguments.from_options, options)  # it may make a model's folder
            place = found.place
            await ensure_served(place, found.config, found.model_repository, idle_s, on_progress)
            address = ServerAddress(place.url)
        connection = cls(address)
        try:
            if options.server is None:
                connection._client.hold()
            connection.description = await connection.read_description()
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def max_related_bytes(self) -> int:
        """How much a language server tells of other files here."""
        return find_max_bytes(Settings(context=self.description.context_tokens).related_bytes)

    @property
    def url(self) -> str:
        """The address of the server, for messages."""
        return self._client.url

    def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        """See `Client.stream`."""
        return self._client.stream(request.value)

    async def ask(self, request: Cleared[CharacterRequest]) -> CharacterAnswer:
        """See `Client.ask`."""
        return await self._client.ask(request.value)

    async def read_description(self) -> Description:
        """See `Client.read_description`."""
        return await self._client.read_description()

    async def read_metrics(self) -> str:
        """See `Client.read_metrics`."""
        return await self._client.read_metrics()

    async def find_problem(self) -> str:
        """See `Client.find_problem`."""
        return await self._client.find_problem()

    async def close(self) -> None:
        """Closes the connection."""
        await self._client.close()


@contextmanager
def show_waiting() -> Iterator[OnDownload]:
    """While the block runs, shows on stderr that the command waits for its server. Yields what shows a download."""
    if not sys.stderr.isatty():
        yield lambda text, percentage: print(f"{text} ({percentage} %)", file=sys.stderr, flush=True)
        return
    from rich.console import Console  # here, because importing it takes as long as a completion
    from rich.text import Text

    with Console(stderr=True).status(_WAITING) as status:
        yield lambda text, percentage: status.update(Text(f"{text} ({percentage} %)"))


@asynccontextmanager
async def open_connection(options: argparse.Namespace, idle_s: float = _IDLE_S) -> AsyncIterator[Connection]:
    """Opens a connection for one command. A terminal shows when it waits for the server."""
    with show_waiting() as on_download:
        connection = await Connection.open(options, on_download=on_download, idle_s=idle_s)
    try:
        yield connection
    finally:
        await connection.close()
