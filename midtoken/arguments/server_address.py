"""The address of a running server, from `--server`, `--tls`, `--tls-ca` and `--insecure`.

Text goes to another machine only over TLS, or where the user says that it need not be encrypted.
"""

import argparse
import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from inference.config import EngineConfig
from inference.serving.calls import Tls
from midtoken.errors import ServerAddressError

TLS_SCHEME = "grpcs://"

Resolve = Callable[[str], Sequence[str]]  # a host name to its IP addresses; raises OSError

_DEFAULTS = EngineConfig(Path())


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a running server listens, and how text gets there."""

    url: str  # host:port
    tls: Tls | None
    arguments: tuple[str, ...]  # those that give another command the same address

    @classmethod
    def from_options(cls, options: argparse.Namespace, resolve: Resolve | None = None) -> Self | None:
        """Builds it from the parsed arguments of `add_connection_arguments`; None without `--server`.

        Raises ServerAddressError for arguments that contradict each other, and for a server on another machine that
        would get plain text.
        """
        if options.server is None:
            _refuse_without_server(options)
            return None
        _refuse_with_server(options)
        url = options.server.removeprefix(TLS_SCHEME)
        if options.tls or options.tls_ca is not None or url != options.server:
            return cls(url, _read_tls(options), _list_arguments(options))
        host, _, port = url.rpartition(":")
        addresses = _find_addresses(host, resolve or _resolve)
        if all(_is_loopback(address) for address in addresses):
            # The address itself, since the name might mean another machine when it is looked up again.
            shown = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
            return cls(f"{shown}:{port}", None, ("--server", options.server))
        if not options.insecure:
            raise ServerAddressError(
                f"{host} is not this machine, and text would go there unencrypted: add --tls (with --tls-ca FILE if "
                "the server's certificate is your own), or --insecure if the connection is protected in another way"
            )
        return cls(url, None, _list_arguments(options))


def _refuse_without_server(options: argparse.Namespace) -> None:
    given = {"--tls": options.tls, "--tls-ca": options.tls_ca is not None, "--insecure": options.insecure}
    for name, is_given in given.items():
        if is_given:
            raise ServerAddressError(f"{name} is about a running server, so it needs --server HOST:PORT")


def _refuse_with_server(options: argparse.Namespace) -> None:
    defaults = {
        "model": None,
        "device": _DEFAULTS.device,
        "dtype": _DEFAULTS.dtype,
        "threads": _DEFAULTS.num_threads,
        "triton_binary": None,
    }
    for name, default in defaults.items():
        if getattr(options, name) != default:
            shown = name.replace("_", "-")
            raise ServerAddressError(
                f"--{shown} has no effect with --server, because a running server has its model already: "
                f"leave out one of the two, or start that server with --{shown}"
            )
    if options.insecure and (options.tls or options.tls_ca is not None or options.server.startswith(TLS_SCHEME)):
        raise ServerAddressError("--insecure and TLS exclude each other: leave out one of the two")


def _read_tls(options: argparse.Namespace) -> Tls:
    if options.tls_ca is None:
        return Tls()
    try:
        return Tls(options.tls_ca.read_bytes())
    except OSError as error:
        raise ServerAddressError(f"cannot read {options.tls_ca} of --tls-ca: {error.strerror}") from None


def _list_arguments(options: argparse.Namespace) -> tuple[str, ...]:
    flags = [name for name, is_given in (("--tls", options.tls), ("--insecure", options.insecure)) if is_given]
    ca_file = [] if options.tls_ca is None else ["--tls-ca", str(options.tls_ca.absolute())]
    return ("--server", options.server, *flags, *ca_file)


def _find_addresses(host: str, resolve: Resolve) -> Sequence[str]:
    bare = host.removeprefix("[").removesuffix("]")
    try:
        return [str(ipaddress.ip_address(bare))]
    except ValueError:
        pass
    try:
        return resolve(bare)
    except OSError as error:
        raise ServerAddressError(f"the name {host} of --server is not known: {error.strerror}") from None


def _resolve(name: str) -> Sequence[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
