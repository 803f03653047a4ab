"""What an operator sees of a real server: whether it is ready, its metrics."""

import signal
from pathlib import Path

import pytest

from inference.client.client import Client
from inference.protocol.completion import CompletionRequest
from tests.support.servers import EMBEDDED, TRITON, is_ready, make_scripted, needs_triton, run_server, wait_until

pytestmark = pytest.mark.e2e

_RUNTIMES = pytest.mark.parametrize("runtime", [pytest.param(TRITON, marks=needs_triton), EMBEDDED])


@_RUNTIMES
async def test_requests_are_counted_and_probes_are_not(tmp_path: Path, runtime: str) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", runtime=runtime) as server:
        assert (is_ready(server), server.read_metric("midtoken_ready")) == (True, 1)
        assert server.read_metric("midtoken_requests_total") == 0
        async with Client(server.url) as client:
            async for _ in client.stream(CompletionRequest("abc")):
                pass
            async for _ in client.stream(CompletionRequest("abc")):
                pass
        wait_until(lambda: server.read_metric("midtoken_requests_total", 'outcome="completed"') == 2)
        assert server.read_metric("midtoken_time_to_first_token_seconds_sum") == 0.005


async def test_a_server_that_drains_is_not_ready_and_takes_what_still_comes(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--drain=2", runtime=EMBEDDED) as server:
        assert is_ready(server)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not is_ready(server))
        async with Client(server.url) as client:
            assert [chunk async for chunk in client.stream(CompletionRequest("abc"))]
        assert server.process.wait(60) == 0


@needs_triton
def test_in_front_of_a_triton_that_has_ended_nothing_is_ready(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state") as server:
        server.process.kill()
        wait_until(lambda: not is_ready(server))
        assert server.read_metric("midtoken_ready") == 0
