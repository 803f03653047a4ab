import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError, ServerUnreachableError
from inference.protocol.arrays import Array, heartbeat_to_arrays
from inference.protocol.characters import Ask, CharacterRequest, Surprisals, answer_to_arrays
from inference.protocol.completion import CompletionChunk, CompletionRequest
from inference.protocol.completion_arrays import chunk_to_arrays, description_to_arrays
from inference.serving.calls import CHARACTERS, COMPLETION
from inference.serving.client import Client
from tests.support.fake_triton import ModelCall, answer_heartbeats, build_last_chunk, run_fake_triton
from tests.support.other_user import NOBODY, as_nobody, needs_other_user
from tests.support.servers import find_free_endpoint

_REQUEST = CompletionRequest("é")


async def _complete(url: str, idle_timeout_s: float = 30.0) -> list[tuple[str, bool]]:
    async with Client(url, idle_timeout_s=idle_timeout_s) as client:
        return [(chunk.text, chunk.is_last) async for chunk in client.stream(_REQUEST)]


async def _answer_two_chunks(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
    yield chunk_to_arrays(CompletionChunk("No"))
    yield build_last_chunk("de")


async def _answer_one_chunk_and_wait(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
    yield chunk_to_arrays(CompletionChunk("No"))
    await asyncio.Event().wait()


async def test_chunks_arrive_in_order() -> None:
    async with run_fake_triton(_answer_two_chunks) as server:
        assert await _complete(server.url) == [("No", False), ("de", True)]
        (call,) = server.calls
        assert (call.model_name, call.arrays["prefix"].tolist()) == ("completion", ["é".encode()])
        assert not server.cancelled.is_set()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("invalid request: no", InvalidRequestError),
        ("overloaded: no", OverloadedError),
        ("the stub process is not healthy", ServerError),
    ],
)
async def test_an_error_text_becomes_the_matching_exception(text: str, kind: type[MidtokenError]) -> None:
    async def answer(_call: ModelCall) -> AsyncIterator[str]:
        yield text

    async with run_fake_triton(answer) as server:
        with pytest.raises(MidtokenError) as raised:
            await _complete(server.url)
        assert type(raised.value) is kind


async def test_a_silent_server_is_an_error_after_the_idle_timeout() -> None:
    async with run_fake_triton(_answer_one_chunk_and_wait) as server:
        with pytest.raises(ServerError, match=f"the server at {server.url} sent nothing for 0.2 s"):
            await _complete(server.url, idle_timeout_s=0.2)


async def test_a_stream_that_ends_early_is_an_error() -> None:
    async def answer(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
        yield chunk_to_arrays(CompletionChunk("No"))

    async with run_fake_triton(answer) as server:
        with pytest.raises(ServerError, match="ended its answer before the last part"):
            await _complete(server.url)


async def test_closing_the_generator_cancels_the_request() -> None:
    async with run_fake_triton(_answer_one_chunk_and_wait) as server, Client(server.url) as client:
        chunks = client.stream(_REQUEST)
        await anext(chunks)
        await chunks.aclose()
        await asyncio.wait_for(server.cancelled.wait(), 30)


async def test_the_next_call_is_opened_while_a_completion_is_answered() -> None:
    async def answer_when_it_is_open(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
        while server.num_opened < 2:
            await asyncio.sleep(0.001)
        yield build_last_chunk("")

    async with run_fake_triton(answer_when_it_is_open) as server:
        assert len(await _complete(server.url)) == 1


async def test_an_address_without_a_server_raises_unreachable() -> None:
    with pytest.raises(ServerUnreachableError, match=r"^no server answers at 127\.0\.0\.1:\d+: \S"):
        await _complete(find_free_endpoint().grpc_url)


async def test_a_call_that_was_open_when_its_server_ended_is_unreachable() -> None:
    details = "Internal error from Core"
    error = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
    client = Client("127.0.0.1:9", is_insecure=True)
    with pytest.raises(ServerUnreachableError, match="the connection was lost"), client._translate_errors():
        raise error
    await client.close()


async def test_a_system_that_does_not_say_whose_a_port_is_gets_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_fake_triton(_answer_two_chunks) as server:
        monkeypatch.delattr(socket, "AF_NETLINK")  # which only Linux has
        with pytest.raises(ServerUnreachableError, match="this system does not say whose it is; --insecure"):
            Client(server.url)
        async with Client(server.url, is_insecure=True) as client:
            assert len([chunk async for chunk in client.stream(_REQUEST)]) == 2


async def test_ask_returns_the_answer_of_the_character_level_model() -> None:
    expected = Surprisals((1.0, 2.5), 1.75)

    async def answer(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
        yield answer_to_arrays(expected)

    async with run_fake_triton(answer) as server, Client(server.url) as client:
        assert await client.ask(CharacterRequest(b"ab", ask=Ask.SURPRISAL)) == expected
        assert server.calls[0].model_name == "characters"


async def test_ask_fails_when_no_answer_comes_in_time() -> None:
    async with run_fake_triton(answer_heartbeats) as server, Client(server.url, answer_timeout_s=0.2) as client:
        with pytest.raises(ServerError, match=r"sent nothing for 0\.2 s"):
            await client.ask(CharacterRequest(b"ab"))


@pytest.mark.parametrize(("model_name", "required"), [(COMPLETION, "prefix"), (CHARACTERS, "text")])
async def test_a_heartbeat_is_read_in_milliseconds(model_name: str, required: str) -> None:
    async with run_fake_triton(lambda call: answer_heartbeats(call, 1500.0)) as server, Client(server.url) as client:
        assert await client.read_heartbeat_ms(model_name) == 1500.0
        (call,) = server.calls
        assert call.model_name == model_name
        assert {name: array.tolist() for name, array in call.arrays.items()} == {required: [b""], "heartbeat": [True]}


@pytest.mark.parametrize("languages", [(), ("python", "go")])
async def test_the_languages_of_the_model_are_read_with_its_heartbeat(languages: tuple[str, ...]) -> None:
    async def answer(_: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
        yield heartbeat_to_arrays(0.0) | description_to_arrays(languages, "int8")

    async with run_fake_triton(answer) as server, Client(server.url) as client:
        assert await client.read_description() == ((languages or None), "int8")


async def test_heartbeat_is_answered_while_completions_wait() -> None:
    async with run_fake_triton(answer_heartbeats) as server, Client(server.url, idle_timeout_s=1.0) as client:
        with pytest.raises(ServerError, match="sent nothing for 1 s"):
            await client.probe()
        assert await client.read_heartbeat_ms() == 0.0


async def test_a_lost_heartbeat_is_requested_again() -> None:
    lost = [True]

    async def answer(_call: ModelCall) -> AsyncIterator[Any]:
        if lost and lost.pop():
            await asyncio.Event().wait()
        yield heartbeat_to_arrays(0.0)

    async with run_fake_triton(answer) as server, Client(server.url) as client, asyncio.timeout(10):
        assert await client.read_heartbeat_ms(first_wait_s=0.2) == 0.0


async def test_a_response_without_a_heartbeat_is_an_error() -> None:
    async with run_fake_triton(_answer_one_chunk_and_wait) as server, Client(server.url) as client:
        with pytest.raises(ServerError, match="answered a request for its heartbeat with something else"):
            await client.read_heartbeat_ms()


async def test_an_unanswered_heartbeat_is_an_error() -> None:
    async def answer(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
        await asyncio.Event().wait()
        yield {"n": np.array([1])}

    async with run_fake_triton(answer) as server, Client(server.url) as client:
        with pytest.raises(ServerError, match=r"the model completion at .* does not answer"):
            await client.read_heartbeat_ms(timeout_s=0.2)


async def test_an_overloaded_server_passes_the_probe() -> None:
    async def answer(_call: ModelCall) -> AsyncIterator[str]:
        yield "overloaded: 64 requests are waiting already"

    async with run_fake_triton(answer) as server, Client(server.url) as client:
        await client.probe()


@needs_other_user
async def test_a_connection_that_is_made_again_is_checked_again() -> None:
    async with run_fake_triton(_answer_two_chunks) as server, Client(server.url) as client:
        assert len([chunk async for chunk in client.stream(_REQUEST)]) == 2
        await server.stop()
        for is_stranger in (True, False):
            async with AsyncExitStack() as stack:
                with as_nobody() if is_stranger else nullcontext():
                    other = await stack.enter_async_context(run_fake_triton(_answer_two_chunks, server.url))
                await _wait_for_an_answer(client, "belongs to the user nobody" if is_stranger else None)
                assert bool(other.num_opened) is not is_stranger


async def _wait_for_an_answer(client: Client, wanted: str | None) -> None:
    """Asks until the error, or the absence of one, is the wanted one: gRPC waits before it connects again."""
    async with asyncio.timeout(30):
        while True:
            try:
                error = ""
                async for _ in client.stream(_REQUEST):
                    pass
            except ServerError as raised:  # the first may be one of the connection that was lost
                error = str(raised)
            if wanted in error if wanted else not error:
                return
            await asyncio.sleep(0.05)


@needs_other_user
@pytest.mark.parametrize(("user", "mode"), [(NOBODY, 0o700), (0, 0o720), (0, 0o1702)])
async def test_a_socket_in_a_folder_of_others_is_not_used(user: int, mode: int, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    os.chown(tmp_path, user, user)
    async with run_fake_triton(_answer_two_chunks, f"unix:{tmp_path}/grpc") as server:
        with pytest.raises(ServerUnreachableError, match="other users can write in its folder"):
            await _complete(server.url)
        tmp_path.chmod(0o755)
        os.chown(tmp_path, 0, 0)
        assert len(await _complete(server.url)) == 2


async def test_a_socket_whose_folder_is_not_there_raises_unreachable() -> None:
    with pytest.raises(ServerUnreachableError, match="no server answers at unix:/no/grpc: No such file"):
        Client("unix:/no/grpc")
