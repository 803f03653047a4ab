"""Which requests the playground answers: those of its own page, and no others.

Any program of this machine, and any web page in the user's browser, can send requests to a port on loopback. Three
things tell them apart:

- the token: a random part of the address that other programs and pages cannot guess;
- `Host`: a page whose name was made to point at loopback (DNS rebinding) sends its own name;
- `Origin`: browsers say which page opens a WebSocket, and same-origin rules do not stop it.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from inference.serving.endpoint import ADDRESS

_NUM_TOKEN_BYTES = 24


@dataclass(frozen=True, slots=True)
class Gate:
    """The address of one playground."""

    port: int
    token: str

    @classmethod
    def create(cls, port: int) -> Self:
        """Returns a gate with a new random token."""
        return cls(port, secrets.token_urlsafe(_NUM_TOKEN_BYTES))

    @property
    def base_path(self) -> str:
        """The path of the page, which begins all others."""
        return f"/{self.token}/"

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.port}{self.base_path}"

    def find_refusal(self, path: str, headers: Mapping[str, str], *, needs_origin: bool) -> str | None:
        """Returns why a request is refused, in words for a person; None if it is one of the page's own.

        `needs_origin`: the request opens a WebSocket, for which browsers always send an Origin.
        """
        host, origin = headers.get("Host"), headers.get("Origin")
        if host not in (f"{ADDRESS}:{self.port}", f"localhost:{self.port}"):
            return f"The playground answers only at {ADDRESS}:{self.port} and localhost:{self.port}."
        if origin is None and needs_origin:
            return "The playground opens a WebSocket only for its own page."
        if origin is not None and origin != f"http://{host}":
            return "The playground answers only its own page, not another site."
        first = path.split("/")[1] if path.count("/") >= 2 else ""
        if not secrets.compare_digest(first.encode(errors="surrogateescape"), self.token.encode()):
            return "This address has no valid token. Open the address that `midtoken playground` has printed."
        return None
