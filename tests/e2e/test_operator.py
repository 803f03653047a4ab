"""What an operator sees of a real server: whether it is ready, its metrics, its log of requests, its traces."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from inference.protocol.completion import CompletionRequest, Extent
from inference.protocol.traceparent import find_request_id, new_traceparent
from inference.serving.client import Client
from tests.support.servers import EMBEDDED, TRITON, RunningServer, find_real, make_scripted, run_server, wait_until
from tests.support.trace_receiver import read_attributes, run_trace_receiver

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
async def test_requests_are_counted_and_logged_under_their_ids_and_probes_are_not(tmp_path: Path, runtime: str) -> None:
    log = tmp_path / "requests.jsonl"
    with run_server(make_scripted(tmp_path), tmp_path / "state", f"--log-requests={log}", runtime=runtime) as server:
        assert (_is_ready(server), server.read_metric("midtoken_ready")) == (True, 1)
        assert server.read_metric("midtoken_requests_total") == 0
        traceparent = new_traceparent()
        async with Client(server.url) as client:
            async for _ in client.stream(CompletionRequest("abc", traceparent=traceparent)):
                pass
            async for _ in client.stream(CompletionRequest("abc")):
                pass
        wait_until(lambda: server.read_metric("midtoken_requests_total", 'outcome="completed"') == 2)
        assert server.read_metric("midtoken_time_to_first_token_seconds_sum") == 0.005
        assert (server.read_metric("nv_inference_count") > 0) == (runtime == TRITON)
        first, second = (json.loads(line)["request_id"] for line in log.read_text().splitlines())
        assert (first, len(second), log.stat().st_mode & 0o777) == (find_request_id(traceparent), 32, 0o600)


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


@_RUNTIMES
def test_a_client_and_the_engine_are_in_one_trace_that_has_no_text(
    tmp_path: Path, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.py").write_text("def make_hunter2(value):\n    return valu")
    with run_trace_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with run_server(find_real(), tmp_path / "state", runtime=runtime) as server:
            command = (sys.executable, "-m", "midtoken", "complete", f"--server={server.url}", f"{tmp_path}/app.py:2")
            assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "e\n"
            wait_until(lambda: len(receiver.spans) == 2)
        client, engine = sorted(receiver.spans, key=lambda span: span.kind, reverse=True)
    assert (engine.trace_id, engine.parent_span_id) == (client.trace_id, client.span_id)
    assert [event.name for event in engine.events] == ["midtoken.prefill", "midtoken.decode"]
    told = [read_attributes(span) for span in (client, engine)]
    assert {each["gen_ai.operation.name"] for each in told} == {"text_completion"}
    assert told[0]["gen_ai.usage.input_tokens"] == told[1]["gen_ai.usage.input_tokens"] != 0
    assert told[1]["gen_ai.request.model"] == "default"
    assert b"hunter2" not in b"".join(receiver.bodies)
