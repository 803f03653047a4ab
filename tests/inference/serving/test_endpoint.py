import os
import socket

import pytest

from inference.errors import LaunchError
from inference.serving.endpoint import (
    ADDRESS,
    Endpoint,
    check_endpoint,
    find_free_endpoint,
    is_listening,
    reserve_endpoint,
)
from tests.support.other_user import can_other_user_listen


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


def test_a_port_in_use_is_named_in_the_error_and_is_listening() -> None:
    free = find_free_endpoint()
    with socket.create_server((ADDRESS, free.grpc_port)):
        assert is_listening(free.grpc_port)
        with pytest.raises(LaunchError, match=f"port {free.grpc_port} on {ADDRESS} cannot be used: Address already in"):
            check_endpoint(free)
    assert not is_listening(free.grpc_port)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_no_other_user_can_listen_on_a_reserved_port() -> None:
    endpoint = find_free_endpoint()

    with reserve_endpoint(endpoint):
        found = [can_other_user_listen(port) for port in (endpoint.http_port, endpoint.grpc_port)]

    assert found == [False, False]
    assert can_other_user_listen(endpoint.grpc_port)  # as the test itself would have found


def test_a_server_of_the_same_user_can_listen_on_a_reserved_port() -> None:
    endpoint = find_free_endpoint()

    with reserve_endpoint(endpoint):
        check_endpoint(endpoint)
        server = socket.create_server((ADDRESS, endpoint.grpc_port), reuse_port=True)
        with (
            server,
            pytest.raises(LaunchError, match=f"port {endpoint.grpc_port} on {ADDRESS} cannot be used: Address"),
        ):
            check_endpoint(endpoint)


def test_a_port_is_reserved_once() -> None:
    endpoint = find_free_endpoint()

    in_use = f"port {endpoint.http_port} on {ADDRESS} cannot be used: Address already in use"
    with reserve_endpoint(endpoint), pytest.raises(LaunchError, match=in_use), reserve_endpoint(endpoint):
        pass
    with reserve_endpoint(endpoint):  # free again
        pass
