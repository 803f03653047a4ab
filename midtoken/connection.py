"""The connection of a subcommand to a completion server: the one that `--server` names, or the user's shared server."""

import argparse
import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.completion import CompletionChunk, CompletionRequest
from inference.serving.character_client import CharacterClient
from inference.serving.completion_client import CompletionClient
from inference.serving.shared_server import ServerLease, lease_server
from midtoken.arguments.server import ServerArguments
from midtoken.arguments.server_address import ServerAddress
from midtoken.display.terminal import show_waiting

_IDLE_S = 900.0  # the shared server runs this long without clients, in case an editor is opened again


class Connection:
    """The two clients of a server, and the lease that keeps a shared server running."""

    def __init__(self, address: ServerAddress, lease: ServerLease | None) -> None:
        """Use `open`."""
        self.address = address
        self._client = CompletionClient(address.url, tls=address.tls)
        self._characters = CharacterClient(address.url, tls=address.tls)
        self._lease = lease

    @classmethod
    async def open(cls, options: argparse.Namespace, on_progress: Callable[[str], None]) -> Self:
        """Connects, and waits until the server answers.

        Raises ServerAddressError, MissingPackagesError, LaunchError or ServerError.
        """
        address = await asyncio.to_thread(ServerAddress.from_options, options)  # it may look up a name
        if address is not None:
            connection = cls(address, None)
        else:
            arguments = ServerArguments.from_options(options)
            lease = await lease_server(arguments.entry, arguments.build_shared_command(_IDLE_S), on_progress)
            url = lease.endpoint.grpc_url
            connection = cls(ServerAddress(url, None, ("--server", url)), lease)
        try:
            await connection._client.read_heartbeat_ms()
        except BaseException:
            await connection.close()
            raise
        return connection

    def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks of the completion: see `CompletionClient.stream`."""
        return self._client.stream(request)

    async def ask(self, request: CharacterRequest) -> CharacterAnswer:
        """Returns the character-level model's answer: see `CharacterClient.ask`."""
        return await self._characters.ask(request)

    async def read_heartbeat_ms(self) -> float:
        """Returns for how many milliseconds the engine has made no progress: see `CompletionClient`."""
        return await self._client.read_heartbeat_ms()

    async def read_server_version(self) -> str:
        """Returns the name and version of the server: see `CompletionClient`."""
        return await self._client.read_server_version()

    async def close(self) -> None:
        """Closes the connection and ends the lease."""
        await self._characters.close()
        await self._client.close()
        if self._lease is not None:
            self._lease.close()


@asynccontextmanager
async def open_connection(options: argparse.Namespace) -> AsyncIterator[Connection]:
    """Opens a connection for one command. A terminal shows when it waits for the server."""
    with show_waiting():
        connection = await Connection.open(options, on_progress=lambda _line: None)
    try:
        yield connection
    finally:
        await connection.close()
