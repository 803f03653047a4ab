"""Exact healing in front of a real vLLM, which has the weights of the bundled model: `make test-vllm`."""

import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest

from benchmarks.baselines.servers import VLLM_PYTHON, run_vllm
from benchmarks.corpora.cuts import draw_cuts
from benchmarks.remote import compare_remote
from inference.config import EngineConfig
from inference.protocol.completion import CompletionRequest, Extent
from inference.remote.executor import load_remote_engine
from midtoken.installed import find_bundled_model
from models.training.corpus import iter_held_out
from tests.support.servers import wait_until
from tests.support.sinks import CollectingSink

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),  # it starts in one to four minutes
    pytest.mark.skipif(not VLLM_PYTHON.exists(), reason="make test-vllm installs it"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_vllm(find_bundled_model(), tmp_path_factory.mktemp("vllm")) as url:
        yield url


def test_every_text_is_that_of_our_own_engine_with_the_same_weights(url: str) -> None:
    assert compare_remote(url, find_bundled_model(), draw_cuts(iter_held_out(), 50, 50, seed=0)).wrong == []


def test_what_is_cancelled_ends_on_the_server(url: str) -> None:
    with closing(load_remote_engine(EngineConfig(find_bundled_model(), engine_url=url))) as engine:
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
