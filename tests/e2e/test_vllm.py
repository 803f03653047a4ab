"""Exact healing in front of a real vLLM, which has the weights of the default model: `make test-vllm`."""

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.protocol.completion import CompletionRequest, Extent
from inference.remote.engine import load_remote_engine
from midtoken.installed import find_default_model
from tests.support.remote_cuts import find_differences, is_healthy
from tests.support.servers import find_free_endpoint, wait_until
from tests.support.sinks import CollectingSink

_PYTHON = Path("build/vllm/bin/python").absolute()
_SETTINGS = {
    "OMP_NUM_THREADS": "1",  # more of them wait for each other on a busy machine
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
_NUM_CUTS = 100

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),  # it starts in one to four minutes
    pytest.mark.skipif(not _PYTHON.exists(), reason="make test-vllm installs it"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server with a model whose files say that it should be sampled, and not repeat itself."""
    folder, port = tmp_path_factory.mktemp("model"), find_free_endpoint().http_port
    shutil.copytree(find_default_model(), folder, dirs_exist_ok=True)
    sampling = {"do_sample": True, "temperature": 0.9, "repetition_penalty": 1.5, "eos_token_id": 0}
    (folder / "generation_config.json").write_text(json.dumps(sampling))
    arguments = f"--model {folder} --host 127.0.0.1 --port {port} --dtype float32 --max-model-len 2048 --enforce-eager"
    with subprocess.Popen(
        [_PYTHON, "-m", "vllm.entrypoints.openai.api_server", *arguments.split()],
        env=os.environ | _SETTINGS,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            wait_until(lambda: server.poll() is None and is_healthy(f"http://127.0.0.1:{port}"), timeout_s=600)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def test_every_text_is_that_of_our_own_engine_with_the_same_weights(url: str) -> None:
    assert find_differences(url, _NUM_CUTS) == []


def test_what_is_cancelled_ends_on_the_server(url: str) -> None:
    with closing(load_remote_engine(EngineConfig(find_default_model(), engine_url=url))) as engine:
        sink = CollectingSink()
        engine.submit(CompletionRequest("x = 1\n", max_tokens=1500, extent=Extent.UNLIMITED, tenant="a"), sink)
        wait_until(lambda: bool(sink.chunks))
        assert _count_running(url) == 1
        sink.cancelled.set()
        wait_until(lambda: _count_running(url) == 0, timeout_s=2)


def _count_running(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("vllm:num_requests_running{")]
    return float(lines[0].rpartition(" ")[2])
