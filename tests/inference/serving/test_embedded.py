"""A server without Triton in this process. What it has in common with Triton is in tests/e2e/test_server_grpc.py."""

import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient

from inference.config import EngineConfig
from inference.errors import LaunchError, ServerError, ServerUnreachableError
from inference.protocol.completion import CompletionRequest
from inference.serving.calls import Secret
from inference.serving.client import Client
from inference.serving.embedded import EmbeddedServer
from inference.serving.launcher import ServerOptions
from tests.support.fake_triton import run_fake_triton, say
from tests.support.servers import make_scripted


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerOptions:
    """Options of a scripted server. The modules of its models do not stay in this process."""
    for name in ("completion", "characters"):
        monkeypatch.setitem(sys.modules, f"midtoken_{name}", ModuleType("of another test"))
        for part in ("model", "adapter", "fakes", "character_fakes"):
            monkeypatch.delitem(sys.modules, f"midtoken_{name}.{part}", raising=False)
    served = make_scripted(tmp_path)
    return ServerOptions(EngineConfig(served.model_dir), served.repository, tmp_path / "state")


@pytest.fixture(params=[True, False])
async def server(options: ServerOptions, request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedServer]:
    """A server on a socket, and one on a port with a secret."""
    server = await EmbeddedServer.start(options, lambda _: None, uses_socket=request.param)
    yield server
    await server.stop()


async def _complete(url: str, **options: Any) -> str:
    async with Client(url, **options) as client:
        return "".join([chunk.text async for chunk in client.stream(CompletionRequest("abc"))])


async def test_it_completes_and_is_healthy(server: EmbeddedServer) -> None:
    assert await _complete(server.url) == "cba"
    await server.probe()


@pytest.mark.parametrize(
    ("model", "name", "text"),
    [
        ("other", "prefix", "unknown model 'other'; known are completion, characters"),
        ("completion", "prefixes", "unknown field 'prefixes'; known are prefix, suffix, "),
        ("completion", "max_tokens", "'max_tokens' must be INT32, not 'BYTES'"),
    ],
)
@pytest.mark.parametrize("server", [True], indirect=True)
async def test_a_request_of_another_kind_gets_one_error(
    server: EmbeddedServer, model: str, name: str, text: str
) -> None:
    tensor = InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"a"], np.object_))

    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": model, "inputs": [tensor]}

    async with InferenceServerClient(server.url) as client:
        [(_, error)] = [answer async for answer in client.stream_infer(requests())]
    assert text in str(error)


@pytest.mark.parametrize("server", [False], indirect=True)
@pytest.mark.parametrize("secret", ["", "#", f"#{64 * '0'}"])
async def test_on_a_port_only_clients_with_the_secret_are_answered(server: EmbeddedServer, secret: str) -> None:
    address, _, real = server.url.partition("#")
    refusal = "has another secret" if secret else "the secret of this server is missing or wrong"
    with pytest.raises(ServerError, match=refusal) as raised:
        await _complete(address + secret)
    assert (len(real), (secret or real) in str(raised.value)) == (64, False)


@pytest.mark.parametrize("answers", [True, False])
async def test_a_program_without_the_secret_that_took_the_port_gets_no_text(answers: bool) -> None:
    async with run_fake_triton(say(waits=True)) as stranger:
        url = Secret.create(stranger.url if answers else "127.0.0.1:9").url
        with pytest.raises(ServerUnreachableError):
            await _complete(url, idle_timeout_s=0.5)
        assert stranger.calls == []


def test_the_answer_of_a_server_at_another_port_is_not_taken() -> None:
    real = Secret.create("127.0.0.1:8001")
    moved = Secret("127.0.0.1:9", real.text)
    given, passed_on = moved.begin("1"), real.begin("1")
    assert real.answer(dict(given)) == ()
    assert not moved.is_answer("1", dict(real.answer(dict(passed_on))))
    assert real.is_answer("1", dict(real.answer(dict(passed_on))))


async def test_on_macos_a_server_with_a_long_folder_is_reached(
    options: ServerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    server = await EmbeddedServer.start(replace(options, state_dir=options.state_dir / (100 * "m")), lambda _: None)
    assert await _complete(server.url) == "cba"
    await server.stop()


async def test_a_folder_in_which_no_socket_can_be_is_a_launch_error(options: ServerOptions) -> None:
    folder = options.state_dir / f"{os.getpid()}-grpc:8001"
    folder.mkdir(parents=True)
    with pytest.raises(LaunchError, match=r"cannot listen in .*/state: "):
        await EmbeddedServer.start(options, lambda _: None)
