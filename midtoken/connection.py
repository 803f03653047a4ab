"""The connection of a subcommand to a completion server: the one that `--server` names, or the user's shared host.

An import contract gives no other module a client, so that each request that leaves the process is `Cleared`. Text goes
to another machine only over TLS.
"""

import argparse
import asyncio
import dataclasses
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar  # the values of fields
from urllib.parse import urlsplit

from inference.client.channel import SOCKET_SCHEME
from inference.client.client import Client
from inference.client.local_host import HostPlace, ensure_served
from inference.config import AUTO_LAYOUT, EngineConfig, find_engine_url
from inference.model_folder import check_model_folder, find_tokenizer_file
from inference.platforms import is_loopback
from inference.private_files import find_user_folder, is_own, read_private
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.completion import CompletionChunk, CompletionRequest, Description
from lsp_server.guard import Cleared, Guard
from midtoken.api import Completion, Model, read_completion
from midtoken.input_text import ClearedText
from midtoken.installed import find_bundled_model, find_model_repository, require_packages
from midtoken.models import OnDownload, ensure_model_folder, fetch_model, find_cache_dir, find_default_name
from midtoken.server_arguments import UsageError, may_be_remote

_TLS_SCHEME = "grpcs://"
# The fields of a configuration that the command line names, and how.
_FIELDS = dataclasses.fields(EngineConfig)
_OPTIONS = {each.name: each.metadata["option"] for each in _FIELDS if "option" in each.metadata}
_NUM_CONTEXTS = 5  # of full length at once: alternatives are four
_WAITING = "waiting for the completion server (its first start takes some seconds) …"
_IDLE_S = 900.0  # the host runs this long without clients, in case an editor is opened again
_Request = TypeVar("_Request", CompletionRequest, CharacterRequest)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a running server listens, and how text gets there."""

    url: str  # for inference.client.client.Client
    tls_ca: bytes | None = None
    key: str = field(default="", repr=False)

    @classmethod
    def from_options(cls, options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Self | None:
        """Builds it from the parsed arguments of `add_connection_arguments`; None without `--server`.

        Raises UsageError for arguments that contradict each other, and for a server on another machine that
        would get plain text; LaunchError for a file that cannot be used.
        """
        if options.server is None:
            for name in ("tls_ca", "server_key"):
                if getattr(options, name) is not None:
                    raise UsageError(f"--{name.replace('_', '-')} is about a running server, so it needs --server")
            return None
        for name in ("model", "engine", "engine_key", *_OPTIONS):
            if getattr(options, name) is not None:
                option = _OPTIONS[name].name if name in _OPTIONS else name.replace("_", "-")
                raise UsageError(
                    f"--{option} has no effect with --server, because a running server has its model "
                    f"already: omit it, or start that server with it"
                )
        if options.server.startswith(SOCKET_SCHEME):
            return cls(options.server)
        url = options.server.removeprefix(_TLS_SCHEME)
        key = read_key(options.server_key, "--server-key", environment.get("MIDTOKEN_SERVER_KEY", ""))
        if url != options.server:
            try:
                return cls(url, b"" if options.tls_ca is None else options.tls_ca.read_bytes(), key)
            except OSError as error:
                raise UsageError(f"cannot read {options.tls_ca} of --tls-ca: {error.strerror}") from None
        host = url.rpartition(":")[0].strip("[]")
        if not is_loopback(host):
            raise UsageError(
                f"{host} is not this machine, and text would go there unencrypted: write {_TLS_SCHEME}{url}"
            )
        return cls(url, None, key)


@dataclass(frozen=True, slots=True)
class ServerArguments:
    """The model to serve, and where the files of its host go."""

    config: EngineConfig
    model_repository: Path
    state_dir: Path

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Self:
        """Builds it from the parsed arguments of `add_server_arguments`.

        Raises UsageError, ModelError or LaunchError.
        """
        require_packages(
            "local",
            "a completion server cannot run here without",
            other_way=", or name a running server with --server HOST:PORT" if "server" in options else "",
        )
        name = options.model or find_default_name()
        model_dir = find_bundled_model() if name is None else ensure_model_folder(name)
        values = {name: getattr(options, name) for name in _OPTIONS}
        named: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if options.engine is None:
            check_model_folder(model_dir)
        else:
            find_tokenizer_file(model_dir)
            url = find_engine_url(options.engine)
            parts = urlsplit(url)
            if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
                raise UsageError(
                    f"{parts.hostname} is not this machine, and text would go there unencrypted: use https"
                )
            is_named = "#" in url or options.model is None  # otherwise `--model` is meant, if the server has several
            named["engine_url"] = url if is_named else f"{url}#{options.model}?"
            named["engine_key"] = read_key(
                options.engine_key, "--engine-key", os.environ.get("MIDTOKEN_ENGINE_KEY", "")
            )
        layout = os.environ.get("MIDTOKEN_FILL_IN_LAYOUT") or AUTO_LAYOUT
        config = EngineConfig(model_dir.resolve(), fill_in_layout=layout, graph_dir=find_cache_dir(), **named)
        room = max(config.cache_tokens, _NUM_CONTEXTS * (config.max_context_tokens or 0))
        return cls(
            dataclasses.replace(config, cache_tokens=room),
            (options.model_repository or find_model_repository()).resolve(),
            (options.state_dir or _find_runtime_dir()).resolve(),
        )

    @property
    def place(self) -> HostPlace:
        """Where the host listens that other processes of this user find. Raises LaunchError."""
        return HostPlace.find(self.state_dir, self.config)


def read_key(path: Path | None, option: str, default: str) -> str:
    """Returns the key in the file that the option names; the default without a file.

    Raises LaunchError, or UsageError for a key that no header can have. Neither quotes it.
    """
    key = default.strip() if path is None else read_private(path, option).strip()
    if key.isascii() and key.isprintable() and " " not in key and (key or path is None):
        return key
    origin = "the environment's key" if path is None else path
    raise UsageError(f"{origin} for {option} must be one word of printable ASCII characters")


def _find_runtime_dir() -> Path:
    """Returns the user's runtime folder; without a login session, the state folder, because /tmp is open to others.

    XDG_RUNTIME_DIR may name the folder of another user, as after `su`. Raises LaunchError.
    """
    folder = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    try:
        is_ours = folder.is_absolute() and is_own(folder.stat())
    except OSError:
        is_ours = False
    return folder / "midtoken" if is_ours else find_user_folder("state")


class Connection:
    """A client that sends only what is cleared. It keeps a shared host running, until it is closed."""

    def __init__(self, address: ServerAddress) -> None:
        """Use `open`."""
        self._client = client = Client(address.url, address.tls_ca, key=address.key)
        self.url = client.url  # the address of the server, for messages
        self.description = Description()  # of the server, as it was when it was connected
        # These calls send no text of the user.
        self.read_description, self.read_metrics = client.read_description, client.read_metrics
        self.find_problem, self.close = client.find_problem, client.close

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

    def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        """See `Client.stream`."""
        return self._client.stream(request.value)

    async def ask(self, request: Cleared[CharacterRequest]) -> CharacterAnswer:
        """See `Client.ask`."""
        return await self._client.ask(request.value)


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


def open_model(options: argparse.Namespace, text: ClearedText | None = None) -> Model:
    """Returns the model of the server that the options name, which is started and connected to when it is first asked.

    `text`: what clears the requests; None if no text of theirs is of a file.
    """
    return Model(_Served(options, text))


class _Served:
    """A `Backend` that sends requests."""

    def __init__(self, options: argparse.Namespace, text: ClearedText | None) -> None:
        self._options, self._text = options, text
        self._guard = Guard(is_remote=may_be_remote(options))
        self._runner, self._stack = asyncio.Runner(), AsyncExitStack()
        self._connection: Connection | None = None

    def complete(self, request: CompletionRequest) -> Completion:
        return self._answer(request, lambda connection, cleared: read_completion(connection.stream(cleared)))

    def ask(self, request: CharacterRequest) -> CharacterAnswer:
        return self._answer(request, Connection.ask)

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    def _answer(self, request: _Request, ask: Callable[[Connection, Cleared[_Request]], Awaitable[_Answer]]) -> _Answer:
        cleared = self._guard.clear(request, ()) if self._text is None else self._text.clear(request)

        async def answer() -> _Answer:
            if self._connection is None:
                self._connection = await self._stack.enter_async_context(open_connection(self._options))
                if self._text is not None and isinstance(request, CompletionRequest):
                    self._text.note_languages(self._connection.description.languages)
            return await ask(self._connection, cleared)

        return self._runner.run(answer())
