from collections.abc import AsyncIterator, Mapping

import pytest

from inference.errors import ServerError
from inference.protocol.arrays import Array
from inference.protocol.characters import Ask, CharacterRequest, Surprisals, answer_to_arrays
from inference.serving.character_client import CharacterClient
from tests.support.fake_triton import ModelCall, answer_heartbeats, run_fake_triton

_ANSWER = Surprisals((1.0, 2.5), 1.75)


async def _answer(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
    yield answer_to_arrays(_ANSWER)


async def test_ask_returns_the_answer() -> None:
    async with run_fake_triton(_answer) as server:
        client = CharacterClient(server.url)
        assert await client.ask(CharacterRequest(b"ab", ask=Ask.SURPRISAL)) == _ANSWER
        await client.close()


async def test_read_heartbeat_asks_the_characters_model() -> None:
    async with run_fake_triton(lambda call: answer_heartbeats(call, 20.0)) as server:
        client = CharacterClient(server.url)
        assert await client.read_heartbeat_ms() == 20.0
        await client.close()
        (call,) = server.calls
        assert call.model_name == "characters"
        assert {name: array.tolist() for name, array in call.arrays.items()} == {"text": [b""], "heartbeat": [True]}


async def test_ask_fails_when_no_answer_comes_in_time() -> None:
    async with run_fake_triton(answer_heartbeats) as server:
        client = CharacterClient(server.url, timeout_s=0.2)
        with pytest.raises(ServerError, match=r"sent nothing for 0\.2 s"):
            await client.ask(CharacterRequest(b"ab", ask=Ask.SURPRISAL))
        await client.close()
