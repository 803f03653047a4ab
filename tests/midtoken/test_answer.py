import asyncio
import math

import pytest

from inference.errors import OverloadedError
from inference.protocol.characters import END
from inference.protocol.completion import CompletionRequest, ExplainedNode
from midtoken.answer import ByteName, complete, find_shares, find_unfinished, name_byte
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


def _node(log_mass: float | None) -> ExplainedNode:
    return ExplainedNode(None, "", 0, log_mass, None, None)


def test_shares_are_of_all_crossings_and_sum_to_one() -> None:
    shares = find_shares([_node(math.log(0.3)), _node(None), _node(math.log(0.1))])
    assert shares[1] is None
    assert (shares[0], shares[2]) == pytest.approx((0.75, 0.25))


def test_masses_that_are_too_small_for_a_float_have_shares() -> None:
    assert find_shares([_node(-2000.0), _node(-2000.0)]) == pytest.approx((0.5, 0.5))


def test_without_a_crossing_there_are_no_shares() -> None:
    assert find_shares([_node(None), _node(None)]) == (None, None)
    assert find_shares([]) == ()


@pytest.mark.parametrize(
    ("unfinished", "byte", "name"),
    [
        (b"", END, ByteName("end of text", "")),
        (b"", ord("\t"), ByteName("⇥", "0x09")),
        (b"", 0xC3, ByteName("\\xc3", "0xc3, byte 1 of a character")),
        (b"\xc3", 0xA9, ByteName("é", "0xa9, the last of 2 bytes")),
        (b"\xe6", 0x97, ByteName("\\x97", "0x97, byte 2 of a character")),
    ],
)
def test_each_byte_has_a_readable_name(unfinished: bytes, byte: int, name: ByteName) -> None:
    assert name_byte(byte, unfinished) == name


@pytest.mark.parametrize(
    ("text", "unfinished"), [(b"", b""), (b"a", b""), ("日".encode(), b""), (b"a\xe6\x97", b"\xe6\x97"), (b"\xff", b"")]
)
def test_only_an_incomplete_character_at_the_end_is_unfinished(text: bytes, unfinished: bytes) -> None:
    assert find_unfinished(text) == unfinished
