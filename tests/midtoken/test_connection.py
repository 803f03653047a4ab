import argparse
import asyncio

import pytest

from inference.errors import ServerUnreachableError
from inference.serving.endpoint import find_free_endpoint
from midtoken.arguments.parser import add_connection_arguments
from midtoken.connection import Connection
from tests.support.fake_triton import answer_heartbeats, run_fake_triton


def _ignore(_line: str) -> None:
    pass


async def test_a_busy_server_is_connected_to_at_once() -> None:
    async with run_fake_triton(answer_heartbeats) as server:  # it never answers a completion
        async with asyncio.timeout(30):
            connection = await Connection.open(argparse.Namespace(server=server.url), _ignore)
        await connection.close()


async def test_connecting_to_a_missing_server_is_an_error() -> None:
    with pytest.raises(ServerUnreachableError, match="no server answers at"):
        await Connection.open(argparse.Namespace(server=find_free_endpoint().grpc_url), _ignore)


@pytest.mark.parametrize("address", ["localhost", "http://127.0.0.1:8001", ":8001", "127.0.0.1:", "127.0.0.1:x"])
def test_an_address_without_host_and_port_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_connection_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--server", address])
    assert "as in 127.0.0.1:8001" in capsys.readouterr().err
