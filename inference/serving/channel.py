"""The gRPC channel to a server: in plain text, or over TLS."""

from dataclasses import dataclass
from typing import Any  # grpc has no types

import grpc

_OPTIONS = (
    ("grpc.max_send_message_length", -1),  # no limit
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 310_000),  # by default, Triton closes a connection that pings more often than each 300 s
    ("grpc.keepalive_timeout_ms", 20_000),
)
# A proxy of the environment would read what is sent in plain text, even to loopback.
_NO_PROXY = ("grpc.enable_http_proxy", 0)


@dataclass(frozen=True, slots=True)
class Tls:
    """Encrypts a connection, and checks that the server has a certificate for its name."""

    ca_certificates: bytes | None = None  # whose certificates are trusted, in PEM; None: gRPC's own list


def open_channel(url: str, tls: Tls | None) -> Any:
    """Returns an asynchronous channel to `url`, a "host:port". It connects when it is used. None: plain text."""
    if tls is None:
        return grpc.aio.insecure_channel(url, options=(*_OPTIONS, _NO_PROXY))
    return grpc.aio.secure_channel(url, grpc.ssl_channel_credentials(tls.ca_certificates), options=_OPTIONS)
