"""The proxy that the environment names for a server elsewhere. What connects is told of it, so that all agree."""

import os
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import proxy_bypass


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, which may be one that cannot be used."""

    variable: str  # that names it
    url: str  # with a scheme

    @property
    def problem(self) -> str:
        """Why it cannot be used; empty if it can."""
        try:
            parts = urlsplit(self.url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # of its port or host
            is_usable = False
        return "" if is_usable else f"the proxy that {self.variable} names cannot be used: it is not http://HOST:PORT"

    def __str__(self) -> str:
        """For a message. Its URL may have a password."""
        return f"the proxy that {self.variable} names"


def find_proxy(host: str, *names: str) -> Proxy | None:
    """Returns the first that a variable names, in either case; None if none does, or if NO_PROXY has the host."""
    variables = [variable for name in names for variable in (name, name.upper()) if os.environ.get(variable)]
    if not variables or proxy_bypass(host):
        return None
    url = os.environ[variables[0]]
    return Proxy(variables[0], url if "://" in url else f"http://{url}")
