"""Where a server listens: three ports on loopback."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from inference.errors import LaunchError

ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The ports of one server."""

    http_port: int
    grpc_port: int
    metrics_port: int

    @property
    def ports(self) -> tuple[int, int, int]:
        """The HTTP, gRPC and metrics ports."""
        return self.http_port, self.grpc_port, self.metrics_port

    @property
    def grpc_url(self) -> str:
        """The `url` argument of Client."""
        return f"{ADDRESS}:{self.grpc_port}"

    @property
    def http_url(self) -> str:
        """The base URL of the HTTP API."""
        return f"http://{ADDRESS}:{self.http_port}"

    @property
    def metrics_url(self) -> str:
        """The URL that Prometheus scrapes."""
        return f"http://{ADDRESS}:{self.metrics_port}/metrics"


def find_free_endpoint() -> Endpoint:
    """Returns three different ports that nothing listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]  # all open together, so the ports differ
        for each in sockets:
            each.bind((ADDRESS, 0))
        return Endpoint(*(each.getsockname()[1] for each in sockets))


def is_listening(port: int) -> bool:
    """Returns whether something accepts connections on the port."""
    with socket.socket() as client:
        client.settimeout(1.0)  # of a process that hangs, the queue may be full
        return client.connect_ex((ADDRESS, port)) == 0


def check_endpoint(endpoint: Endpoint) -> None:
    """Raises LaunchError if a port is given twice or cannot be used. Our own reservation does not count as use."""
    for port in endpoint.ports:
        if endpoint.ports.count(port) > 1:
            raise LaunchError(f"port {port} is given twice; HTTP, gRPC and metrics each need a port of their own")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            _bind(probe, port)
        if is_listening(port):  # a server of ours that shares its port
            raise LaunchError(_describe_unusable(port, os.strerror(errno.EADDRINUSE)))


@contextlib.contextmanager
def reserve_endpoint(endpoint: Endpoint) -> Iterator[None]:
    """Inside, no other user can listen on the HTTP and gRPC ports, not even while the server is started again.

    Otherwise another user could take a port in that time, and would get the source text that clients send to it.
    The kernel lets sockets share a port only where all have SO_REUSEPORT and belong to the same user.
    Raises LaunchError where a port is given twice, cannot be used or is reserved already.
    """
    check_endpoint(endpoint)
    with contextlib.ExitStack() as stack:
        for port in (endpoint.http_port, endpoint.grpc_port):
            holder = stack.enter_context(socket.socket())
            _bind(holder, port)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # or others could bind, since it never listens
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        yield


def _bind(free: socket.socket, port: int) -> None:
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended may linger
    try:
        free.bind((ADDRESS, port))
    except OSError as error:
        raise LaunchError(_describe_unusable(port, error.strerror)) from None


def _describe_unusable(port: int, reason: str | None) -> str:
    return f"port {port} on {ADDRESS} cannot be used: {reason}"
