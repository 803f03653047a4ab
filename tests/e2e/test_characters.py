"""The characters model in a real tritonserver: over HTTP, as with curl, and over gRPC, with our client."""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from inference.client.client import Client
from inference.protocol.characters import (
    Ask,
    CharacterAnswer,
    CharacterRequest,
    Generated,
    NextByte,
    Surprisals,
    TextProbability,
)
from tests.support.servers import RunningServer

pytestmark = pytest.mark.e2e


def _post(server: RunningServer, body: bytes | dict[str, Any]) -> dict[str, Any]:
    url = f"{server.endpoint.http_url}/v2/models/characters/generate"
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        answer: dict[str, Any] = json.load(response, parse_constant=_refuse_constant)
    return answer


def _refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


async def _ask(server: RunningServer, request: CharacterRequest, timeout_s: float = 60.0) -> CharacterAnswer:
    async with Client(server.url, answer_timeout_s=timeout_s) as client:
        return await client.ask(request)


def test_the_real_model_predicts_the_right_byte(real_server: RunningServer) -> None:
    answer = _post(real_server, {"text": "import os\nfor name in os.listdi", "num_members": 3})
    assert max(range(257), key=answer["probabilities"].__getitem__) == ord("r")
    members = json.loads(answer["members"])
    assert (members[0]["ahead"][0], members[0]["tokens"][-1]) == ("r", "dir")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"ask": "surprisal"}', "invalid request: text is missing: what is asked about"),
        (b'{"text": "", "ask": "surprisal"}', "invalid request: text is empty; surprisal is about its bytes"),
        (b'{"text": "a", "prefix": "b"}', "invalid request: unknown field 'prefix'; known are text, context, ask, "),
        (b'{"text": "a", "ask": "magic"}', "ask must be one of next_byte, surprisal, probability, sample, greedy, not"),
        (b'{"text": "a", "covering": "all"}', "covering must be one of canonical, beam, enumerate, not 'all'"),
        (b'{"text": "a", "covering": "beam", "width": 0}', "width must be between 1 and 1024, not 0"),
        (b'{"text": "' + b"a" * 16385 + b'"}', "text has 16385 bytes; at most 16384 are taken, with context before"),
        (b'{"text": 5}', "invalid request: text must be a string"),
        (b"text=a", "invalid request: the body is no JSON"),
    ],
)
def test_bad_input_gets_one_error(scripted_server: RunningServer, body: bytes, text: str) -> None:
    assert text in _post(scripted_server, body)["error"]


async def test_the_client_gets_each_kind_of_answer(any_server: RunningServer) -> None:
    kinds = {
        Ask.NEXT_BYTE: NextByte,
        Ask.SURPRISAL: Surprisals,
        Ask.PROBABILITY: TextProbability,
        Ask.SAMPLE: Generated,
        Ask.GREEDY: Generated,
    }
    for ask in Ask:
        assert type(await _ask(any_server, CharacterRequest(b"def main", ask=ask))) is kinds[ask]


def _count_begun(server: RunningServer, context: str) -> int:
    log = server.served.model_dir / "characters.txt"
    return log.read_text().count(f"open b'{context}'") if log.exists() else 0


_ENDLESS = CharacterRequest(b"a", b"endless", Ask.SURPRISAL)


async def test_a_cancelled_running_question_ends_and_the_next_one_is_answered(
    any_scripted_server: RunningServer,
) -> None:
    num_begun = _count_begun(any_scripted_server, "endless")
    task = asyncio.create_task(_ask(any_scripted_server, _ENDLESS))
    while _count_begun(any_scripted_server, "endless") == num_begun:
        await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert isinstance(await _ask(any_scripted_server, CharacterRequest(b"a"), timeout_s=10.0), NextByte)
