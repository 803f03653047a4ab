"""Where the front listens, and who may use it: on loopback programs of this machine, elsewhere those with the key."""

import argparse
import os
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Self

from inference.serving.loopback import ADDRESS, find_stranger, listen
from midtoken.server import read_key
from midtoken.server_arguments import UsageError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one front."""

    address: str
    listener: socket
    key: str  # empty: none is needed
    tls: ssl.SSLContext | None

    @classmethod
    def open(cls, options: argparse.Namespace, environment: Mapping[str, str]) -> Self:
        """Listens where the options say. Raises UsageError or LaunchError."""
        address, _, port = options.openai.rpartition(":")
        key = read_key(options.openai_key, "--openai-key", environment.get("MIDTOKEN_OPENAI_KEY", ""))
        tls = None if options.openai_tls is None else _load_tls(options.openai_tls)
        if address not in ("", ADDRESS) and not (key and tls):
            raise UsageError(
                f"other machines may reach {address}, so --openai needs a key "
                "(--openai-key FILE, or MIDTOKEN_OPENAI_KEY) and --openai-tls FILE"
            )
        if not port.isdecimal() or int(port) > 65_535:
            raise UsageError(
                f"--openai must be a port, or an address and a port such as 0.0.0.0:8012, not {options.openai}"
            )
        return cls(address or ADDRESS, listen(int(port), address or ADDRESS), key, tls)

    @property
    def url(self) -> str:
        """The address of the server for an editor."""
        return f"http{'s' if self.tls else ''}://{self.address}:{self.listener.getsockname()[1]}"

    def find_refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Returns the status and the words with which a request is refused; None if it may enter."""
        port = self.listener.getsockname()[1]
        if self.address == ADDRESS and (stranger := find_stranger(headers, port)):
            return 403, stranger
        given = headers.get("Authorization", "").removeprefix("Bearer ")
        if self.key and not secrets.compare_digest(os.fsencode(given), os.fsencode(self.key)):
            return 401, "The header Authorization needs to be `Bearer` and the key of this server."
        return None


def _load_tls(path: Path) -> ssl.SSLContext:
    """Raises UsageError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(path)
    except OSError as error:  # an SSLError is one
        raise UsageError(f"{path} of --openai-tls needs a private key and its certificates in PEM: {error}") from None
    return context
