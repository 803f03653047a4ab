"""Where the front listens, and who may use it: on loopback programs of this machine, elsewhere those with the key."""

import argparse
import secrets
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import socket

from inference.platforms import Self, is_own
from inference.serving.loopback import find_stranger, is_loopback, listen
from midtoken.errors import UsageError

KEY_VARIABLE = "MIDTOKEN_OPENAI_KEY"


@dataclass(frozen=True, slots=True)
class Door:
    """The address of one front."""

    address: str
    listener: socket
    key: str = ""  # empty: none is needed
    tls: ssl.SSLContext | None = None

    @classmethod
    def open(cls, options: argparse.Namespace, environment: Mapping[str, str]) -> Self:
        """Listens where the options say. Raises UsageError, also for another machine's requests without key or TLS."""
        address, port = options.openai
        key = environment.get(KEY_VARIABLE, "") if options.openai_key is None else _read_key(options.openai_key)
        tls = None if options.openai_tls is None else _load_tls(options.openai_tls)
        if not is_loopback(address) and not (key and tls):
            raise UsageError(
                f"--openai {address} can be reached by other machines, so it needs a key (--openai-key FILE, or "
                f"{KEY_VARIABLE}) and --openai-tls FILE"
            )
        return cls(address, listen(port, address), key, tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    @property
    def url(self) -> str:
        """The address of the server for an editor."""
        return f"http{'s' if self.tls else ''}://{self.address}:{self.listener.getsockname()[1]}"

    def find_refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Returns the status and the words with which a request is refused; None if it may enter."""
        port = self.listener.getsockname()[1]
        if is_loopback(self.address) and (stranger := find_stranger(headers, port)):
            return 403, stranger
        given = headers.get("Authorization", "").removeprefix("Bearer ")
        if self.key and not secrets.compare_digest(given.encode(errors="surrogateescape"), self.key.encode()):
            return 401, "The header Authorization needs to be `Bearer` and the key of this server."
        return None


def _read_key(path: Path) -> str:
    """Raises UsageError."""
    try:
        state, key = path.stat(), path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path} of --openai-key: {error}") from None
    if not key or not is_own(state) or stat.S_IMODE(state.st_mode) & 0o077:
        raise UsageError(f"{path} of --openai-key must have a key, and only you may read it: chmod 600 {path}")
    return key


def _load_tls(path: Path) -> ssl.SSLContext:
    """Raises UsageError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(path)
    except OSError as error:  # an SSLError is one
        raise UsageError(f"{path} of --openai-tls needs a private key and its certificates in PEM: {error}") from None
    return context
