"""Where an HTTP port listens, and who may use it: on loopback programs of this machine, elsewhere those with a key."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from socket import socket
from typing import Self

from inference.errors import LaunchError
from inference.serving.loopback import find_stranger, is_loopback, listen
from midtoken.access import Access


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one port."""

    address: str
    listener: socket
    access: Access

    @classmethod
    def open(cls, place: str, option: str, access: Access) -> Self:
        """Listens at `[ADDRESS:]PORT`, the value of an option. Raises UsageError or LaunchError."""
        address, port = access.find_place(place, option)
        try:
            return cls(address, listen(port, address.strip("[]")), access)
        except LaunchError as error:
            raise LaunchError(f"{option}: {error}") from None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What connections begin with; None: they are plain."""
        return None if self.access.certificate is None else self.access.certificate.context

    @property
    def url(self) -> str:
        """Its address for a client."""
        return f"http{'s' if self.access.certificate else ''}://{self.address}:{self.listener.getsockname()[1]}"

    def find_refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Returns the status and the words with which a request is refused; None if it may enter."""
        if is_loopback(self.listener.getsockname()[0]) and (stranger := find_stranger(headers)):
            return 403, stranger
        if self.access.keys is not None and self.find_tenant(headers) is None:
            return 401, "The header Authorization needs to be `Bearer` and your key of this server."
        return None

    def find_tenant(self, headers: Mapping[str, str]) -> str | None:
        """Returns whose a request is by its key; None if there are no keys."""
        keys = self.access.keys
        return None if keys is None else keys.find_tenant(headers.get("Authorization", ""))
