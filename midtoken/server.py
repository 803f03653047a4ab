"""The server that a command uses: the one that `--server` names, or the host that the user's editors share.

Text goes to another machine only over TLS.
"""

import argparse
import dataclasses
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self  # the values of fields
from urllib.parse import urlsplit

from inference.client.channel import SOCKET_SCHEME, Tls
from inference.client.local_host import HostPlace
from inference.config import AUTO_LAYOUT, EngineConfig, find_engine_url
from inference.errors import LaunchError
from inference.model_folder import check_model_folder, find_tokenizer_file
from inference.platforms import is_loopback
from inference.private_files import find_user_folder, is_own, read_private
from midtoken.installed import find_default_model, find_model_repository, require_packages
from midtoken.models import ensure_model_folder
from midtoken.server_arguments import UsageError

_TLS_SCHEME = "grpcs://"
# The fields of a configuration that the command line names, and how.
_FIELDS = dataclasses.fields(EngineConfig)
_OPTIONS = {each.name: each.metadata["option"] for each in _FIELDS if "option" in each.metadata}
_NUM_CONTEXTS = 5  # of full length at once: alternatives are four


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a running server listens, and how text gets there."""

    url: str  # for inference.client.client.Client
    tls: Tls | None = None
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
                raise UsageError(
                    f"{_name_option(name)} has no effect with --server, because a running server has its model "
                    f"already: omit it, or start that server with it"
                )
        if options.server.startswith(SOCKET_SCHEME):
            return cls(options.server)
        url = options.server.removeprefix(_TLS_SCHEME)
        key = read_key(options.server_key, "--server-key", environment.get("MIDTOKEN_SERVER_KEY", ""))
        if url != options.server:
            return cls(url, _read_tls(options.tls_ca), key)
        host = url.rpartition(":")[0].strip("[]")
        if not is_loopback(host):
            raise UsageError(
                f"{host} is not this machine, and text would go there unencrypted: write {_TLS_SCHEME}{url}"
            )
        return cls(url, None, key)


def _name_option(name: str) -> str:
    return f"--{_OPTIONS[name].name if name in _OPTIONS else name.replace('_', '-')}"


def _read_tls(path: Path | None) -> Tls:
    try:
        return Tls(None if path is None else path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path} of --tls-ca: {error.strerror}") from None


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
        model_dir = ensure_model_folder(options.model) if options.model is not None else find_default_model()
        values = {name: getattr(options, name) for name in _OPTIONS}
        named: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if options.engine is None:
            check_model_folder(model_dir)
        else:
            find_tokenizer_file(model_dir)
            named["engine_url"] = _find_engine(options.engine, options.model)
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


def _find_engine(text: str, model: str | None) -> str:
    """Returns the address; where it names no model, with that of `--model`, if the server has several.

    Raises ModelError, or UsageError for an address to which text would go unencrypted.
    """
    url = find_engine_url(text)
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise UsageError(f"{parts.hostname} is not this machine, and text would go there unencrypted: use https")
    return url if "#" in url or model is None else f"{url}#{model}?"


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
