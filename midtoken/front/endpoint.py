"""Where the front listens, and who may use it: on loopback programs of this machine, elsewhere those with a key."""

from collections.abc import Mapping
from dataclasses import dataclass
from socket import socket
from typing import Self

from inference.serving.loopback import ADDRESS, find_stranger, listen
from midtoken.access import Access


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one front."""

    address: str
    listener: socket
    access: Access

    @classmethod
    def open(cls, place: str, access: Access) -> Self:
        """Listens at `[ADDRESS:]PORT`. Raises UsageError or LaunchError."""
        address, port = access.find_place(place, "--openai")
        return cls(address, listen(port, address), access)

    @property
    def url(self) -> str:
        """The address of the server for an editor."""
        return f"http{'s' if self.access.certificate else ''}://{self.address}:{self.listener.getsockname()[1]}"

    def find_refusal(self, headers: Mapping[str, str], tenant: str | None) -> tuple[int, str] | None:
        """Returns the status and the words with which a request of a tenant is refused; None if it may enter."""
        port = self.listener.getsockname()[1]
        if self.address == ADDRESS and (stranger := find_stranger(headers, port)):
            return 403, stranger
        if self.access.keys is not None and tenant is None:
            return 401, "The header Authorization needs to be `Bearer` and your key of this server."
        return None

    def find_tenant(self, headers: Mapping[str, str]) -> str | None:
        """Returns whose a request is by its key; None if there are no keys."""
        keys = self.access.keys
        return None if keys is None else keys.find_tenant(headers.get("Authorization", ""))
