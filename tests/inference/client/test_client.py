import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from inference.client.channel import CHARACTERS, COMPLETION
from inference.client.client import Client
from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError, ServerUnreachableError
from inference.protocol.arrays import (
    HEARTBEAT,
    Array,
    chunk_to_arrays,
    description_to_arrays,
)
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Description,
    FinishReason,
    RelatedFile,
)
from tests.support.fake_triton import Answer, ModelCall, build_last_chunk, run_fake_triton, say
from tests.support.servers import pick_free_endpoint

_REQUEST = CompletionRequest("é")
_NO = chunk_to_arrays(CompletionChunk("No"))
_SAY_NODE = say(_NO, build_last_chunk("de"))


async def _complete(url: str, idle_timeout_s: float = 30.0) -> list[tuple[str, bool]]:
    async with Client(url, idle_timeout_s=idle_timeout_s) as client:
        return [(chunk.text, chunk.is_last) async for chunk in client.stream(_REQUEST)]


async def test_chunks_arrive_in_order() -> None:
    async with run_fake_triton(_SAY_NODE) as server:
        assert await _complete(server.url) == [("No", False), ("de", True)]
        (call,) = server.calls
        assert (call.model_name, call.arrays["prefix"].tolist()) == ("completion", ["é".encode()])
        assert not server.cancelled.is_set()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (say("invalid request: no"), InvalidRequestError, "no"),
        (say("overloaded: no"), OverloadedError, "no"),
        (say("the stub process is not healthy"), ServerError, "the stub process is not healthy"),
        (say("unknown model: 'completion' has no available versions"), ServerUnreachableError, "it is ending"),
        (say(_NO, waits=True), ServerError, r"the server at 127.0.0.1:\d+ sent nothing for 0.2 s"),
        (say(_NO), ServerError, "ended its answer before the last part"),
    ],
    ids=["invalid", "overloaded", "failed", "ending", "silent", "ended early"],
)
async def test_what_goes_wrong_becomes_the_matching_exception(
    answer: Answer, kind: type[MidtokenError], words: str
) -> None:
    async with run_fake_triton(answer) as server:
        with pytest.raises(MidtokenError, match=words) as raised:
            await _complete(server.url, idle_timeout_s=0.2 if "sent nothing" in words else 30.0)
        assert type(raised.value) is kind


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "busy"])
async def test_a_connection_on_which_each_request_is_cancelled_unanswered_is_checked_by_a_heartbeat(
    is_dead: bool,
) -> None:
    async with (
        run_fake_triton(say(waits=True, heartbeat_ms=None if is_dead else 0.0)) as server,
        Client(server.url, silent_s=1.0) as client,
    ):
        server.cancel_s = 3600.0 if is_dead else 0.0
        with pytest.raises(ServerUnreachableError) if is_dead else nullcontext():
            for _ in range(60):
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await anext(client.stream(_REQUEST))


async def test_a_request_that_ended_without_text_because_of_the_load_slows_down_those_of_its_document() -> None:
    chunk = CompletionChunk("", finish_reason=FinishReason.SUPERSEDED, stats=CompletionStats())
    request = CompletionRequest("a", document="a")
    async with run_fake_triton(say(chunk_to_arrays(chunk))) as server, Client(server.url) as client:
        for _ in range(12):
            await _read_all(client, request)
        late = asyncio.ensure_future(_read_all(client, request))
        await _read_all(client, replace(request, document="b"))
        assert not late.done()
        await late


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", r"^no server answers at 127\.0\.0\.1:\d+: \S"),
        ("unix:/no/grpc", "^no server answers at unix:/no/grpc: No such"),
    ],
)
async def test_an_address_without_a_server_raises_unreachable(url: str, words: str) -> None:
    with pytest.raises(ServerUnreachableError, match=words):
        await _complete(url or pick_free_endpoint().grpc_url)


async def test_a_call_that_was_open_when_its_server_ended_is_unreachable() -> None:
    details = "Internal error from Core"
    error = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
    client = Client("127.0.0.1:9")
    with pytest.raises(ServerUnreachableError, match="the connection was lost"), client._translate_errors():
        raise error
    await client.close()


@pytest.mark.parametrize("num_turns", [*range(12), 1000])
async def test_a_request_is_cancelled_on_its_stream_which_ends_by_itself(num_turns: int) -> None:
    async with run_fake_triton(say(_NO, waits=True)) as server:
        async with Client(server.url) as client:
            await client.read_description()
            asking = asyncio.ensure_future(_read_all(client))
            for _ in range(num_turns):
                await asyncio.sleep(0)
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
        has_arrived = len(server.calls) == 2
        assert (server.cancelled.is_set(), server.num_broken) == (has_arrived, 0)
        assert has_arrived or num_turns < 1000


async def _read_all(client: Client, request: CompletionRequest = _REQUEST) -> None:
    async for _ in client.stream(request):
        pass


@pytest.mark.parametrize(("model_name", "required"), [(COMPLETION, "prefix"), (CHARACTERS, "text")])
async def test_a_heartbeat_is_read_in_milliseconds(model_name: str, required: str) -> None:
    async with run_fake_triton(say(heartbeat_ms=1500.0)) as server, Client(server.url) as client:
        assert (await client.read_description(model_name)).heartbeat_ms == 1500.0
        (call,) = server.calls
        assert call.model_name == model_name
        assert {name: array.tolist() for name, array in call.arrays.items()} == {required: [b""], "heartbeat": [True]}


@pytest.mark.parametrize("is_old", [False, True])
async def test_a_server_without_a_field_is_not_sent_it(is_old: bool) -> None:
    description = Description(inputs=("prefix",)) if is_old else Description()
    fields: dict[str, Any] = {
        "min_probability": 0.5,
        "related": (RelatedFile("a.py", "a"),),
        "path": "b.py",
    }

    async def answer(call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
        is_asked = HEARTBEAT in call.arrays
        yield description_to_arrays(description) if is_asked else build_last_chunk("e")

    async with run_fake_triton(answer) as server, Client(server.url) as client:
        await client.read_description()
        chunks = [each async for each in client.stream(CompletionRequest("x", **fields))]
    assert len(chunks) == 1
    assert server.calls[-1].arrays.keys() == {"prefix"} | (set() if is_old else fields.keys())


async def test_a_lost_heartbeat_is_requested_again() -> None:
    lost = [True]

    async def answer(_call: ModelCall) -> AsyncIterator[Any]:
        if lost and lost.pop():
            await asyncio.Event().wait()
        yield description_to_arrays(Description(runs_as="int8"))

    async with run_fake_triton(answer) as server, Client(server.url) as client, asyncio.timeout(10):
        assert await client.read_description(first_wait_s=0.2) == Description(runs_as="int8")


@pytest.mark.parametrize(
    ("responses", "timeout_s", "words"),
    [
        ([_NO], 30.0, "answered a request for its heartbeat with something else"),
        ([], 0.2, "the model completion at .* does not"),
    ],
    ids=["another", "none"],
)
async def test_a_heartbeat_that_does_not_come_is_an_error(
    responses: list[Mapping[str, Array]], timeout_s: float, words: str
) -> None:
    answer = say(*responses, heartbeat_ms=None, waits=True)
    async with run_fake_triton(answer) as server, Client(server.url) as client:
        with pytest.raises(ServerError, match=words):
            await client.read_description(timeout_s=timeout_s)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize(("user", "mode"), [(65_534, 0o700), (0, 0o720), (0, 0o1702)])
async def test_a_socket_in_a_folder_of_others_is_not_used(user: int, mode: int, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    os.chown(tmp_path, user, user)
    async with run_fake_triton(_SAY_NODE, f"unix:{tmp_path}/grpc") as server:
        with pytest.raises(ServerUnreachableError, match="other users can write in its folder"):
            await _complete(server.url)
        tmp_path.chmod(0o755)
        os.chown(tmp_path, 0, 0)
        assert len(await _complete(server.url)) == 2


async def test_a_server_that_would_answer_has_no_problem_and_another_says_why_not() -> None:
    async with run_fake_triton(say(build_last_chunk("a"), heartbeat_ms=0.0)) as server, Client(server.url) as client:
        assert await client.find_problem() == ""
    async with run_fake_triton(say(heartbeat_ms=11_000.0)) as server, Client(server.url) as client:
        assert await client.find_problem() == "the model completion has made no progress for 11 s"
        await server.stop()
        assert "no server answers" in await client.find_problem()


async def test_a_new_client_does_not_get_the_failure_of_one_before(tmp_path: Path) -> None:
    """As while a server is started again: the path of its socket has the same descriptor each time."""
    url, failures = f"unix:{tmp_path}/grpc", []
    for _ in range(3):
        with pytest.raises(ServerUnreachableError, match="No such file") as failure:
            await _complete(url)
        failures.append(failure)  # with its calls
        await asyncio.sleep(0.3)
    async with run_fake_triton(_SAY_NODE, url):
        assert len(await _complete(url)) == 2
