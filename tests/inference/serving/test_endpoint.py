import socket

import pytest

from inference.errors import LaunchError
from inference.serving.endpoint import ADDRESS, Endpoint, check_endpoint, find_free_endpoint, is_listening


def test_free_ports_are_different_and_usable() -> None:
    endpoint = find_free_endpoint()
    check_endpoint(endpoint)
    assert len(set(endpoint.ports)) == 3


@pytest.mark.parametrize(
    "endpoint", [Endpoint(8000, 8000, 8002), Endpoint(8000, 8001, 8000), Endpoint(8000, 8001, 8001)]
)
def test_a_port_given_twice_is_named_in_the_error(endpoint: Endpoint) -> None:
    with pytest.raises(LaunchError, match=r"port 800[01] is given twice; HTTP, gRPC and metrics each need"):
        check_endpoint(endpoint)


async def test_a_port_in_use_is_named_in_the_error_and_is_listening() -> None:
    free = find_free_endpoint()
    with socket.create_server((ADDRESS, free.grpc_port)):
        assert await is_listening(free.grpc_port)
        with pytest.raises(LaunchError, match=f"port {free.grpc_port} on {ADDRESS} cannot be used: Address already in"):
            check_endpoint(free)
    assert not await is_listening(free.grpc_port)
