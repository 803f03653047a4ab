"""What editors send to the port of `midtoken serve`, with the real model: a cursor inside of a word."""

from dataclasses import replace

import pytest
from aiohttp import ClientSession

from inference.client.client import Client
from inference.protocol.completion import CompletionRequest, Healing
from midtoken.http.app import COMPLETIONS
from midtoken.http.parsed_request import Fields
from tests.support.front_clients import EDITORS, REST, complete_as, read_sent
from tests.support.servers import RunningServer

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("editor", EDITORS)
async def test_the_word_is_completed_which_a_plain_engine_does_not(
    embedded_real_server: RunningServer, editor: str
) -> None:
    assert await complete_as(editor, embedded_real_server.http_url) == REST
    sent = read_sent(editor)
    request = COMPLETIONS[sent["path"]][0](Fields(sent["body"])).first
    assert request.prefix.endswith("return self._ite")
    assert not (await _complete_plainly(embedded_real_server, request)).startswith(REST)


async def _complete_plainly(server: RunningServer, request: CompletionRequest) -> str:
    async with Client(server.url) as client:
        plain = replace(request, healing=Healing.NONE)
        return "".join([chunk.text async for chunk in client.stream(plain) if chunk.candidate == 0])


@pytest.mark.parametrize("num_chunks", [1, 3, 4])
async def test_other_files_that_were_read_ahead_are_not_read_again(
    embedded_real_server: RunningServer, num_chunks: int
) -> None:
    """As llama.vim does it with a chunk more each time."""
    chunks = [
        {"text": f"class Ring{number}:\n    size = {number}\n", "filename": "/a/b.py"} for number in range(num_chunks)
    ]
    wanted = [f"timings/{name}" for name in ("prompt_n", "cache_n")]
    body = {**read_sent("llama_vim")["body"], "input_extra": chunks, "response_fields": wanted}
    ring = {"input_prefix": "", "prompt": "", "input_suffix": "", "n_predict": 0, "samplers": []}
    told = []
    async with ClientSession(headers={"Content-Type": "application/json"}) as session:
        for fields in (body | ring, body):
            async with session.post(f"{embedded_real_server.http_url}/infill", json=fields) as response:
                told.append(await response.json())
    ahead, read = told
    assert ahead["timings/prompt_n"] > 8 * num_chunks
    assert read["timings/cache_n"] >= ahead["timings/prompt_n"] + ahead["timings/cache_n"]
