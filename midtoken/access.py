"""Who may use the ports of `midtoken serve`: programs of this machine, and with TLS those that have a key."""

import argparse
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from inference.serving.key_file import KeyFile
from inference.serving.loopback import ADDRESS, is_loopback
from midtoken.server_arguments import UsageError

_REPLACED = "MIDTOKEN_OPENAI_KEY"  # the key of --openai, before there were several


@dataclass(frozen=True, slots=True)
class Certificate:
    """A private key and its certificates."""

    pem: bytes
    context: ssl.SSLContext


@dataclass(frozen=True, slots=True)
class Access:
    """The keys and the certificate of all ports."""

    keys: KeyFile | None  # None: nobody needs one
    certificate: Certificate | None  # None: no TLS

    @classmethod
    def from_options(
        cls, options: argparse.Namespace, environment: Mapping[str, str], say: Callable[[str], object]
    ) -> Self:
        """Reads the files of `--keys` and `--tls`. Raises UsageError or LaunchError."""
        if options.openai is not None and environment.get(_REPLACED):  # the port would have no key, without a word
            raise UsageError(f"there is no {_REPLACED}: write a line `NAME KEY` into a file and name it with --keys")
        keys = None if options.keys is None else KeyFile(options.keys, "--keys", say)
        return cls(keys, None if options.tls is None else _read_certificate(options.tls))

    def find_place(self, text: str, option: str) -> tuple[str, int]:
        """Returns the address and the port of `[ADDRESS:]PORT`. Raises UsageError for one that is not protected."""
        address, _, port = text.rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise UsageError(f"{option} must be a port, or an address and a port such as 0.0.0.0:8012, not {text}")
        address = address or ADDRESS
        if not is_loopback(address.strip("[]")) and not (self.keys and self.certificate):
            raise UsageError(
                f"{option} at {address} needs --keys FILE and --tls FILE, because other machines may reach it; "
                f"without them, it can only be at a loopback address such as {ADDRESS}"
            )
        return address, int(port)


def _read_certificate(path: Path) -> Certificate:
    """Raises UsageError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(path, password="")  # instead of a question in the terminal
        return Certificate(path.read_bytes(), context)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise UsageError(f"{path} of --tls needs a private key and its certificates in PEM: {error}") from None
