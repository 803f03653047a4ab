"""How a client and a server on loopback show each other that they know one secret, without sending it.

Every user of the machine can connect to such a port, or listen on it once its server has ended. So each call begins
with a number of the client's, and a code (HMAC) of it with the secret, the address and the side from either side. No
text is sent before the client has the server's. The address keeps a program that listens at another one from passing
the codes on.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from inference.platforms import Self

_SEPARATOR = "#"  # between the address and the secret
_NUMBER, _CODE = "midtoken-number", "midtoken-code"  # the names of the metadata


@dataclass(frozen=True, slots=True)
class Secret:
    """The secret of the server at one address. It is in files of this user only, and in no message."""

    address: str  # host:port
    text: str

    @classmethod
    def create(cls, address: str) -> Self:
        """Returns a new one."""
        return cls(address, secrets.token_hex())

    @classmethod
    def read(cls, url: str) -> Self | None:
        """Returns that in a `url`; None if it has none."""
        address, separator, text = url.partition(_SEPARATOR)
        return cls(address, text) if separator else None

    @property
    def url(self) -> str:
        """The argument of Client: the address with the secret. For no log and no command line."""
        return f"{self.address}{_SEPARATOR}{self.text}"

    def begin(self, number: str) -> tuple[tuple[str, str], ...]:
        """The metadata that a client begins a call with. `number` is its own, and random."""
        return (_NUMBER, number), (_CODE, self._sign("client", number))

    def answer(self, metadata: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The metadata that a server answers with; empty if the client's are not right."""
        number = metadata.get(_NUMBER, "")
        is_right = hmac.compare_digest(metadata.get(_CODE, ""), self._sign("client", number))
        return ((_CODE, self._sign("server", number)),) if is_right else ()

    def is_answer(self, number: str, metadata: Mapping[str, str]) -> bool:
        """Returns whether this is what the server answers to `begin(number)`."""
        return hmac.compare_digest(metadata.get(_CODE, ""), self._sign("server", number))

    def _sign(self, side: str, number: str) -> str:
        return hmac.new(self.text.encode(), f"{side} {self.address} {number}".encode(), "sha256").hexdigest()
