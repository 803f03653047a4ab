import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
import pytest

from inference.errors import InvalidRequestError, OverloadedError, ServerError, ServerUnreachableError
from inference.protocol.arrays import Array, FieldTypes, heartbeat_to_arrays, to_array
from inference.serving.endpoint import find_free_endpoint
from inference.serving.streams import TritonStreams
from tests.support.fake_triton import ModelCall, answer_heartbeats, run_fake_triton

_TYPES: FieldTypes = {"text": ("BYTES", np.object_)}
_ARRAYS = {"text": to_array(("é",), np.object_)}


async def _read_all(url: str, idle_timeout_s: float = 30.0) -> list[int]:
    """Returns the numbers that the model `m` answers, up to and including 9."""
    connection = TritonStreams(url, idle_timeout_s)
    try:
        answers = connection.stream(
            "m", _ARRAYS, _TYPES, lambda arrays: int(arrays["n"][0]), lambda number: number == 9
        )
        return [number async for number in answers]
    finally:
        await connection.close()


async def _read_heartbeat_ms(url: str, timeout_s: float = 30.0) -> float:
    connection = TritonStreams(url, 30.0)
    try:
        return await connection.read_heartbeat_ms("m", "text", timeout_s)
    finally:
        await connection.close()


def _number(number: int) -> dict[str, Array]:
    return {"n": np.array([number], np.int32)}


async def _answer_three_numbers(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
    for number in (1, 2, 9):
        yield _number(number)


async def _answer_one_number_and_wait(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
    yield _number(1)
    await asyncio.Event().wait()


async def test_all_responses_up_to_the_last_are_yielded() -> None:
    async with run_fake_triton(_answer_three_numbers) as server:
        assert await _read_all(server.url) == [1, 2, 9]


async def test_a_request_contains_its_model_and_arrays() -> None:
    async with run_fake_triton(_answer_three_numbers) as server:
        await _read_all(server.url)
        (call,) = server.calls
        assert (call.model_name, call.arrays["text"].tolist()) == ("m", ["é".encode()])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("invalid request: no", InvalidRequestError),
        ("overloaded: no", OverloadedError),
        ("the stub process is not healthy", ServerError),
    ],
)
async def test_an_error_text_becomes_the_matching_exception(text: str, kind: type[Exception]) -> None:
    async def answer(_call: ModelCall) -> AsyncIterator[str]:
        yield text

    async with run_fake_triton(answer) as server:
        with pytest.raises(kind) as raised:
            await _read_all(server.url)
        assert type(raised.value) is kind


async def test_a_silent_server_is_an_error_after_the_idle_timeout() -> None:
    async with run_fake_triton(_answer_one_number_and_wait) as server:
        with pytest.raises(ServerError, match=f"the server at {server.url} sent nothing for 0.2 s"):
            await _read_all(server.url, idle_timeout_s=0.2)


async def test_a_stream_that_ends_early_is_an_error() -> None:
    async def answer(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
        yield _number(1)

    async with run_fake_triton(answer) as server:
        with pytest.raises(ServerError, match="ended its answer before the last part"):
            await _read_all(server.url)


async def test_closing_the_generator_cancels_the_request() -> None:
    async with run_fake_triton(_answer_one_number_and_wait) as server:
        connection = TritonStreams(server.url, 30.0)
        answers = connection.stream("m", _ARRAYS, _TYPES, dict, lambda _: False)
        await anext(answers)
        await answers.aclose()
        await asyncio.wait_for(server.cancelled.wait(), 30)
        await connection.close()


async def test_a_request_that_was_answered_is_not_cancelled() -> None:
    async with run_fake_triton(_answer_three_numbers) as server:
        await _read_all(server.url)
        assert not server.cancelled.is_set()


async def test_the_next_call_is_opened_while_a_request_is_answered() -> None:
    async def answer_when_it_is_open(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
        while server.num_opened < 2:
            await asyncio.sleep(0.001)
        yield _number(9)

    async with run_fake_triton(answer_when_it_is_open) as server:
        connection = TritonStreams(server.url, 30.0)
        answers = connection.stream("m", _ARRAYS, _TYPES, dict, lambda _: True, opens_next=True)
        assert len([answer async for answer in answers]) == 1
        await connection.close()


async def test_an_address_without_a_server_raises_unreachable() -> None:
    with pytest.raises(ServerUnreachableError):
        await _read_all(find_free_endpoint().grpc_url)


async def test_a_heartbeat_is_read_in_milliseconds() -> None:
    async with run_fake_triton(lambda call: answer_heartbeats(call, 1500.0)) as server:
        assert await _read_heartbeat_ms(server.url) == 1500.0


async def test_a_lost_heartbeat_is_requested_again() -> None:
    num_calls = 0

    async def answer(_call: ModelCall) -> AsyncIterator[Any]:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            await asyncio.Event().wait()
        yield heartbeat_to_arrays(0.0)

    async with run_fake_triton(answer) as server:
        connection = TritonStreams(server.url, 30.0)
        async with asyncio.timeout(10):
            assert await connection.read_heartbeat_ms("m", "text", 30.0, first_wait_s=0.2) == 0.0
        await connection.close()


async def test_a_response_without_a_heartbeat_is_an_error() -> None:
    async with run_fake_triton(_answer_one_number_and_wait) as server:
        with pytest.raises(ServerError, match="answered a request for its heartbeat with something else"):
            await _read_heartbeat_ms(server.url)


async def test_an_unanswered_heartbeat_is_an_error() -> None:
    async def answer(_call: ModelCall) -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""

    async with run_fake_triton(answer) as server:
        with pytest.raises(ServerError, match=r"the model m at .* does not answer"):
            await _read_heartbeat_ms(server.url, timeout_s=0.2)
