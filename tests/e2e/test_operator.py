"""What an operator sees of a real server: whether it is ready, its metrics."""

import asyncio
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from inference.protocol.completion import CompletionRequest, Extent
from inference.serving.client import Client
from tests.support.servers import EMBEDDED, TRITON, RunningServer, make_scripted, run_server, wait_until

pytestmark = pytest.mark.e2e

_RUNTIMES = pytest.mark.parametrize("runtime", [TRITON, EMBEDDED])


def _read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _find_stub(server: RunningServer) -> int:
    commands = server.find_processes()
    (stub,) = (pid for pid in server.find_stubs() if "/completion/1/model.py" in commands[pid])
    return stub


def _is_ready(server: RunningServer) -> bool:
    return _read(f"{server.endpoint.operator_url}/ready")[0] == 200


@_RUNTIMES
async def test_requests_are_counted_and_probes_are_not(tmp_path: Path, runtime: str) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", runtime=runtime) as server:
        assert (_is_ready(server), server.read_metric("midtoken_ready")) == (True, 1)
        assert server.read_metric("midtoken_requests_total") == 0
        async with Client(server.url) as client:
            async for _ in client.stream(CompletionRequest("abc")):
                pass
            async for _ in client.stream(CompletionRequest("abc")):
                pass
        wait_until(lambda: server.read_metric("midtoken_requests_total", 'outcome="completed"') == 2)
        assert server.read_metric("midtoken_time_to_first_token_seconds_sum") == 0.005
        assert (server.read_metric("nv_inference_count") > 0) == (runtime == TRITON)


def test_with_triton_a_model_that_hangs_is_not_ready(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--probe-interval=1000") as server:
        triton_ready = f"{server.endpoint.http_url}/v2/health/ready"
        assert (_is_ready(server), _read(triton_ready)[0]) == (True, 200)
        stub = _find_stub(server)
        os.kill(stub, signal.SIGSTOP)
        wait_until(lambda: not _is_ready(server))
        assert _read(triton_ready)[0] == 503
        assert server.read_metric("midtoken_ready") == 0
        assert _read(f"{server.endpoint.operator_url}/health")[0] == 200
        os.kill(stub, signal.SIGKILL)  # if it went on, it would read memory that Triton has freed
        wait_until(lambda: _is_ready(server))


async def test_a_server_that_drains_is_not_ready_and_takes_what_still_comes(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--drain=2", runtime=EMBEDDED) as server:
        assert _is_ready(server)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not _is_ready(server))
        async with Client(server.url) as client:
            assert [chunk async for chunk in client.stream(CompletionRequest("abc"))]
        assert server.process.wait(60) == 0


@_RUNTIMES
async def test_a_server_that_ends_is_first_not_ready_and_its_streams_go_on(tmp_path: Path, runtime: str) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", runtime=runtime) as server:
        async with Client(server.url) as client:
            chunks = client.stream(CompletionRequest("slow", max_tokens=1000, extent=Extent.BLOCK))
            await anext(chunks)
            server.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(8):
                while await asyncio.to_thread(_is_ready, server):
                    await asyncio.sleep(0.01)
            for _ in range(20):
                await anext(chunks)
            await chunks.aclose()
