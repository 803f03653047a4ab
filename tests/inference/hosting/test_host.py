"""A host in this process. What it has in common with Triton is in tests/e2e/test_server_grpc.py."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient

from inference.client.client import Client
from inference.config import EngineConfig
from inference.errors import LaunchError
from inference.hosting.host import Host
from inference.platforms import ADDRESS, IMPORT_ROOT
from inference.protocol.completion import CompletionRequest
from tests.support.servers import Served, make_scripted, pick_free_endpoint


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A scripted model. Its modules do not stay in this process."""
    known = set(sys.modules)
    yield make_scripted(tmp_path)
    for name in set(sys.modules) - known:
        if name.startswith("midtoken_"):
            del sys.modules[name]


async def _start(served: Served, socket: Path, port: int | None = None) -> Host:
    return await Host.start(EngineConfig(served.model_dir), served.repository, socket, port)


@pytest.fixture
async def url(served: Served, tmp_path: Path) -> AsyncIterator[str]:
    host = await _start(served, tmp_path / "sock")
    yield f"unix:{tmp_path}/sock"
    await host.stop()


async def _complete(url: str) -> str:
    async with Client(url) as client:
        return "".join([chunk.text async for chunk in client.stream(CompletionRequest("abc"))])


async def test_it_answers_on_its_socket_and_on_the_port_of_loopback_that_is_named(
    served: Served, tmp_path: Path
) -> None:
    port = pick_free_endpoint().grpc_port
    host = await _start(served, tmp_path / "sock", port)
    assert [await _complete(each) for each in (f"unix:{tmp_path}/sock", f"{ADDRESS}:{port}")] == ["cba", "cba"]
    await host.stop()


@pytest.mark.parametrize(
    ("model", "name", "text"),
    [
        ("other", "prefix", "unknown model 'other'; known are completion, characters"),
        ("completion", "prefixes", "unknown field 'prefixes'; known are prefix, suffix, "),
        ("completion", "max_tokens", "'max_tokens' must be INT32, not 'BYTES'"),
    ],
)
async def test_a_request_of_another_kind_gets_one_error(url: str, model: str, name: str, text: str) -> None:
    tensor = InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"a"], np.object_))

    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": model, "inputs": [tensor]}

    async with InferenceServerClient(url) as client:
        [(_, error)] = [answer async for answer in client.stream_infer(requests())]
    assert text in str(error)


@pytest.mark.parametrize("system", ["linux", "darwin"])
async def test_a_socket_in_a_folder_with_a_long_name_is_reached(
    served: Served, system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    folder = tmp_path / (100 * "m")
    folder.mkdir()
    host = await _start(served, folder / "sock")
    assert await _complete(f"unix:{folder}/sock") == "cba"
    await host.stop()


async def test_a_place_where_no_socket_can_be_is_a_launch_error(served: Served, tmp_path: Path) -> None:
    (tmp_path / "sock" / "full").mkdir(parents=True)
    with pytest.raises(LaunchError, match=r"cannot listen at .*/sock"):
        await _start(served, tmp_path / "sock")


_HANGING = """
import asyncio, faulthandler
from pathlib import Path
from types import SimpleNamespace
from inference.hosting.host import Host

class Adapter:
    types, engine = {}, SimpleNamespace(heartbeat=SimpleNamespace(measure_ms=lambda: STALL_MS))

    def close(self):
        pass

async def main():
    host = Host({"completion": Adapter()})
    ending = asyncio.ensure_future(host._end_if_stuck(0.4))
    await asyncio.sleep(1.5)
    ending.cancel()
    faulthandler.cancel_dump_traceback_later()
    print("lives", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("stall_ms", [0, 1000])
def test_a_host_whose_model_makes_no_progress_ends(stall_ms: int) -> None:
    command = [sys.executable, "-c", _HANGING.replace("STALL_MS", str(stall_ms))]
    ended = subprocess.run(command, cwd=IMPORT_ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.returncode != 0) == (("lives\n", False) if stall_ms == 0 else ("", True))
