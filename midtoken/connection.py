"""The connection of a subcommand to a completion server: the one that `--server` names, or the user's shared server.

An import contract gives no other module a client, so that each request that leaves the process is `Cleared`.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, Self, TypeVar

from inference.errors import ServerUnreachableError
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.completion import CompletionChunk, CompletionRequest
from inference.protocol.completion_arrays import Description
from inference.serving.client import Client
from inference.serving.shared_server import ServerLease, lease_server
from lsp_server.privacy.guard import Cleared
from lsp_server.project.choice import find_max_bytes
from lsp_server.settings import Settings
from midtoken.models import OnDownload, fetch_model
from midtoken.server import ServerAddress, ServerArguments

_WAITING = "waiting for the completion server (its first start takes some seconds) …"
_Part = TypeVar("_Part")
_IDLE_S = 900.0  # the shared server runs this long without clients, in case an editor is opened again


class Connection:
    """A client that sends only what is cleared, with the lease that keeps a shared server running.

    Of several servers, one is used until it does not answer, and then the next. What it has not begun to answer by then
    is sent to the next one, too. A completion that has begun fails, because the next server may continue differently.
    """

    def __init__(self, address: ServerAddress, lease: ServerLease | None) -> None:
        """Use `open`."""
        self._clients = [Client(each, address.tls, address.is_insecure, key=address.key) for each in address.urls]
        self._client = self._clients[0]  # that of the server that is used
        self._lease = lease
        self.languages: tuple[str, ...] | None = None  # those that the model knows; None: any
        self.reads_files = False  # whether the model was trained on several files in one text
        self.runs_as = ""  # the type of numbers, the threads, and why
        self.context_tokens: int | None = None  # of a prompt; None: the server does not say

    @classmethod
    async def open(
        cls,
        options: argparse.Namespace,
        on_progress: Callable[[str], None] = lambda _line: None,
        on_download: OnDownload = lambda _text, _percentage: None,
        idle_s: float = _IDLE_S,
    ) -> Self:
        """Connects, and waits until the server answers. A model of a hub is downloaded first.

        A shared server that is started ends when it has had no client for `idle_s`.

        Raises UsageError, ModelError, LaunchError or ServerError.
        """
        found = await prepare_server(options, on_download)
        if isinstance(found, ServerAddress):
            connection = cls(found, None)
        else:
            lease = await lease_server(found.entry, found.build_shared_command(idle_s), on_progress)
            connection = cls(ServerAddress((lease.url,), None), lease)
        try:
            description = await connection.read_description()
            connection.languages, connection.runs_as = description.languages or None, description.runs_as
            connection.reads_files = description.repository_format != ""
            connection.context_tokens = description.context_tokens
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def max_related_bytes(self) -> int:
        """How much a language server tells of other files here."""
        return find_max_bytes(Settings(context=self.context_tokens).related_bytes)

    @property
    def url(self) -> str:
        """The address of the server, for messages."""
        return self._client.url

    def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        """See `Client.stream`."""
        value = request.value
        return self._use(lambda client: client.stream(value))

    async def ask(self, request: Cleared[CharacterRequest]) -> CharacterAnswer:
        """See `Client.ask`."""
        value = request.value
        [answer] = [each async for each in self._use(lambda client: _yield_one(client.ask(value)))]
        return answer

    async def read_description(self) -> Description:
        """See `Client.read_description`."""
        [description] = [each async for each in self._use(lambda client: _yield_one(client.read_description()))]
        return description

    async def close(self) -> None:
        """Closes the connection and ends the lease."""
        for client in self._clients:
            await client.close()
        if self._lease is not None:
            self._lease.close()

    async def _use(self, call: Callable[[Client], AsyncGenerator[_Part, None]]) -> AsyncGenerator[_Part, None]:
        """Yields what the call yields at the first server that answers."""
        number, problems, has_begun = self._clients.index(self._client), list[str](), False
        for client in (*self._clients[number:], *self._clients[:number]):
            try:
                if client is not self._client:
                    await client.read_description()  # which fields it knows
                async with aclosing(call(client)) as parts:
                    async for part in parts:
                        self._client, has_begun = client, True
                        yield part
                return
            except ServerUnreachableError as error:
                if has_begun:
                    raise
                problems.append(str(error))
        raise ServerUnreachableError("; ".join(problems))


async def _yield_one(answer: Coroutine[Any, Any, _Part]) -> AsyncGenerator[_Part, None]:
    yield await answer


async def prepare_server(options: argparse.Namespace, on_download: OnDownload) -> ServerAddress | ServerArguments:
    """Returns where the server runs that the options name, or how to start it. A model of a hub is downloaded first.

    Raises UsageError, ModelError or LaunchError.
    """
    address = await asyncio.to_thread(ServerAddress.from_options, options)  # it may look up a name
    if address is not None:
        return address
    await fetch_model(options.model, on_download)
    return await asyncio.to_thread(ServerArguments.from_options, options)  # it may make a model's folder


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
