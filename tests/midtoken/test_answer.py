import asyncio

import pytest

from inference.errors import OverloadedError
from inference.protocol.completion import CompletionRequest
from midtoken.answer import complete
from tests.support.lsp_fakes import FedBackend


async def _start(backend: FedBackend) -> "asyncio.Task[str]":
    async def ask() -> str:
        answer = await complete(backend, CompletionRequest("return Nod"))
        assert answer.last.is_last
        return answer.text

    task = asyncio.create_task(ask())
    while not backend.streams:
        await asyncio.sleep(0)
    return task


async def test_the_texts_of_all_chunks_are_joined() -> None:
    backend = FedBackend()
    task = await _start(backend)
    backend.streams[0].feed("e")
    backend.streams[0].finish("()")
    assert await task == "e()"


async def test_cancelling_the_call_ends_the_stream() -> None:
    backend = FedBackend()
    task = await _start(backend)
    task.cancel()
    await asyncio.wait([task])
    assert backend.streams[0].is_cancelled


async def test_an_error_of_the_server_is_raised() -> None:
    backend = FedBackend()
    task = await _start(backend)
    backend.streams[0].fail(OverloadedError("busy"))
    with pytest.raises(OverloadedError):
        await task
