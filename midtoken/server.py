"""The server that a command uses: the one that `--server` names, or the shared server of the user.

Text goes to another machine only over TLS, or where the user says that it need not be encrypted.
"""

import argparse
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from inference.config import EngineConfig, find_engine_urls
from inference.errors import LaunchError
from inference.model_folder import check_model_folder, find_tokenizer_file
from inference.platforms import is_own
from inference.serving.calls import SOCKET_SCHEME, Tls
from inference.serving.launcher import ServerOptions
from inference.serving.loopback import is_loopback
from inference.serving.private_files import find_user_folder, read_private
from inference.serving.shared_server import ServerEntry
from inference.serving.triton_installation import find_obstacle
from midtoken.installed import find_default_model, find_model_repository, require_packages
from midtoken.models import ensure_model_folder
from midtoken.server_arguments import Runtime, UsageError

TLS_SCHEME = "grpcs://"

Resolve = Callable[[str], Sequence[str]]  # a host name to its IP addresses; raises OSError

_DEFAULTS = EngineConfig(Path())
_NUM_CONTEXTS = 5  # of full length at once: alternatives are four


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a running server listens, and how text gets there."""

    urls: tuple[str, ...]  # each for inference.serving.client.Client; the first that answers is used
    tls: Tls | None
    is_insecure: bool = False
    key: str = field(default="", repr=False)

    @classmethod
    def from_options(
        cls, options: argparse.Namespace, resolve: Resolve | None = None, environment: Mapping[str, str] = os.environ
    ) -> Self | None:
        """Builds it from the parsed arguments of `add_connection_arguments`; None without `--server`.

        Raises UsageError for arguments that contradict each other, and for a server on another machine that
        would get plain text or, whatever `--insecure` says, a key in it; LaunchError for a file that cannot be used.
        """
        if options.server is None:
            _refuse_without_server(options)
            return None
        _refuse_with_server(options)
        if options.server.startswith(SOCKET_SCHEME):
            return cls((options.server,), None)  # which needs no key
        text = options.server.removeprefix(TLS_SCHEME)
        urls = tuple(text.split(","))
        key = read_key(options.server_key, "--server-key", environment.get("MIDTOKEN_SERVER_KEY", ""))
        if options.tls or options.tls_ca is not None or text != options.server:
            return cls(urls, _read_tls(options), key=key)
        for host in [url.rpartition(":")[0] for url in urls]:
            is_here = all(is_loopback(address) for address in _find_addresses(host, resolve or _resolve))
            if not is_here and key:
                raise UsageError(f"{host} is not this machine, and your key would go there unencrypted: add --tls")
            if not (is_here or options.insecure):
                raise UsageError(
                    f"{host} is not this machine, and text would go there unencrypted: add --tls (with --tls-ca FILE "
                    "if the server's certificate is your own), or --insecure if the connection is protected in "
                    "another way"
                )
        return cls(urls, None, options.insecure, key)


def _refuse_without_server(options: argparse.Namespace) -> None:
    for name in ("tls", "tls_ca", "insecure", "server_key"):
        if getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} is about a running server, so it needs --server HOST:PORT")


def _refuse_with_server(options: argparse.Namespace) -> None:
    defaults = {
        "model": None,
        "engine": None,
        "engine_key": None,
        "device": _DEFAULTS.device,
        "dtype": _DEFAULTS.dtype,
        "threads": _DEFAULTS.num_threads,
        "context": _DEFAULTS.max_context_tokens,
        "runtime": Runtime.AUTO,
        "triton_binary": None,
    }
    for name, default in defaults.items():
        if getattr(options, name) != default:
            shown = name.replace("_", "-")
            raise UsageError(
                f"--{shown} has no effect with --server, because a running server has its model already: "
                f"omit it, or start that server with --{shown}"
            )
    if options.insecure and (options.tls or options.tls_ca is not None or options.server.startswith(TLS_SCHEME)):
        raise UsageError("--insecure and TLS exclude each other: omit one of them")


def _read_tls(options: argparse.Namespace) -> Tls:
    if options.tls_ca is None:
        return Tls()
    try:
        return Tls(options.tls_ca.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {options.tls_ca} of --tls-ca: {error.strerror}") from None


def _find_addresses(host: str, resolve: Resolve) -> Sequence[str]:
    try:
        return resolve(host.removeprefix("[").removesuffix("]"))
    except OSError as error:
        raise UsageError(f"the name {host} is not known: {error.strerror}") from None


def _resolve(name: str) -> Sequence[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


@dataclass(frozen=True, slots=True)
class ServerArguments:
    """The model to serve, what serves it, and where the server's files go."""

    model: EngineConfig
    runtime: Runtime
    triton_binary: Path | None
    model_repository: Path
    state_dir: Path | None  # None: the user's own folders
    engine_key: Path | None  # the file with it; None: it is in the environment

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
        if options.triton_binary and options.runtime == Runtime.EMBEDDED:
            raise UsageError("--runtime embedded and --triton-binary exclude each other: omit one of them")
        if options.runtime == Runtime.TRITON and (obstacle := find_obstacle(options.triton_binary)):
            raise LaunchError(obstacle)
        model_dir = ensure_model_folder(options.model) if options.model is not None else find_default_model()
        if options.engine is None:
            check_model_folder(model_dir)
        else:
            find_tokenizer_file(model_dir)
            for url in find_engine_urls(options.engine):
                _check_engine(url)
        key_file = options.engine_key and options.engine_key.resolve()
        model = EngineConfig(
            model_dir,
            device=options.device,
            dtype=options.dtype,
            num_threads=options.threads,
            max_context_tokens=options.context,
            memory_mib=options.cache_ram,
            cache_tokens=max(_DEFAULTS.cache_tokens, _NUM_CONTEXTS * (options.context or 0)),
            graph_dir=find_cache_dir(),
            fill_in_layout=os.environ.get("MIDTOKEN_FILL_IN_LAYOUT") or _DEFAULTS.fill_in_layout,
            engine_url=_find_engine_url(options.engine, options.model) if options.engine else "",
            engine_key=read_key(key_file, "--engine-key", os.environ.get("MIDTOKEN_ENGINE_KEY", "")),
        )
        repository = (options.model_repository or find_model_repository()).resolve()
        binary = options.triton_binary and options.triton_binary.resolve()
        state_dir = options.state_dir and options.state_dir.resolve()
        return cls(model, Runtime(options.runtime), binary, repository, state_dir, key_file)

    @property
    def obstacle_to_triton(self) -> str | None:
        """Why the server is an embedded one; None if it is a tritonserver."""
        return "--runtime embedded" if self.runtime is Runtime.EMBEDDED else find_obstacle(self.triton_binary)

    @property
    def entry(self) -> ServerEntry:
        """The entry through which other processes of this user find the server. Raises LaunchError."""
        is_embedded = self.obstacle_to_triton is not None
        return ServerEntry.create(self.state_dir or _find_runtime_dir(), self.model, is_embedded)

    @property
    def server_options(self) -> ServerOptions:
        """The options for the launcher. Raises LaunchError."""
        state_dir = (self.state_dir or find_user_folder("state")) / self.entry.folder.name
        return ServerOptions(self.model, self.model_repository, state_dir, self.triton_binary)

    def build_shared_command(self, idle_s: float) -> list[str]:
        """Returns the command for `inference.serving.shared_server.lease_server`: `midtoken serve` without ports."""
        optional = {
            "--triton-binary": self.triton_binary,
            "--state-dir": self.state_dir,
            "--threads": self.model.num_threads,
            "--context": self.model.max_context_tokens,
            "--engine": self.model.engine_url,
            "--engine-key": self.engine_key,
        }
        return [
            *(sys.executable, "-m", "midtoken", "serve", "--no-ports", f"--until-idle={idle_s}"),
            f"--entry={self.entry.folder}",  # also if the files of the code are just being replaced
            *(f"--model={self.model.model_dir}", f"--model-repository={self.model_repository}"),
            f"--runtime={self.runtime}",
            *(f"--device={self.model.device}", f"--dtype={self.model.dtype}", f"--cache-ram={self.model.memory_mib}"),
            *(f"{name}={value}" for name, value in optional.items() if value),
        ]


def read_key(path: Path | None, option: str, default: str) -> str:
    """Returns the key in the file that the option names; the default without a file.

    Raises LaunchError, or UsageError for a key that no header can have. Neither quotes it.
    """
    key = default.strip() if path is None else read_private(path, option).strip()
    if key.isascii() and key.isprintable() and " " not in key and (key or path is None):
        return key
    origin = "the environment's key" if path is None else path
    raise UsageError(f"{origin} for {option} must be one word of printable ASCII characters")


def _find_engine_url(text: str, model: str | None) -> str:
    """Returns the addresses. Where none is named, the model is that of `--model`, if the server has several."""
    name = "" if model is None else f"#{model.replace(',', '')}?"
    return ",".join(url if "#" in url else url + name for url in find_engine_urls(text))


def _check_engine(url: str) -> None:
    """Raises UsageError for an address to which text would go unencrypted."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not all(map(is_loopback, _find_addresses(parts.hostname or "", _resolve))):
        raise UsageError(f"{parts.hostname} is not this machine, and text would go there unencrypted: use https")


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


def find_cache_dir() -> Path | None:
    """Returns the user's folder for converted models; None if the user has no home folder."""
    with suppress(LaunchError):
        return find_user_folder("cache") / "graphs"
    return None
